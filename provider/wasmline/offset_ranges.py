"""Represents ranges of offsets of a topic, as documents keep them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise

OffsetRanges = Mapping[str, tuple[int, ...]]
"""Ascending boundaries of half-open ranges by partition: ``{"0": (10, 20)}``, or ``{"0": (10, 20, 30, 40)}`` for two.

The partition is text because it is a key of a JSON object.
"""

MAX_PARTITION = 2**31 - 1
MAX_OFFSET = 2**63 - 1


def ranges_of(offsets: OffsetRanges) -> Iterator[tuple[int, int, int]]:
    """Yield each range as partition, start and end."""
    for partition, boundaries in offsets.items():
        for start, end in zip(boundaries[::2], boundaries[1::2], strict=True):
            yield int(partition), start, end


def count_offsets(offsets: OffsetRanges) -> int:
    """Return the number of offsets in the ranges."""
    return sum(end - start for _, start, end in ranges_of(offsets))


def require_ranges(offsets: OffsetRanges) -> None:
    """Raise ValueError unless these are ranges: of a partition, one, or several that do not touch and are not empty."""
    for partition, boundaries in offsets.items():
        if not (partition.isdecimal() and partition == str(int(partition[:10]))) or int(partition) > MAX_PARTITION:
            raise ValueError(f"{partition[:40]!r} is not the number of a partition")
        ascending = all(before < after for before, after in pairwise(boundaries))
        single = len(boundaries) == 2 and boundaries[0] == boundaries[1]
        if not boundaries or len(boundaries) % 2 or not (ascending or single):
            raise ValueError(f"the boundaries of partition {partition} are not pairs in ascending order")
        if boundaries[0] < 0 or boundaries[-1] > MAX_OFFSET:
            raise ValueError(f"partition {partition} has a range with an end that is no offset")


def union_of(parts: Iterable[OffsetRanges]) -> OffsetRanges:
    """Return the offsets that are in any of ``parts``, by partition in order, without empty ranges."""
    found = sorted(chain.from_iterable(ranges_of(each) for each in parts))
    merged: dict[int, list[int]] = {}
    for partition, start, end in found:
        if start == end:
            continue
        boundaries = merged.setdefault(partition, [])
        if boundaries and start <= boundaries[-1]:
            boundaries[-1] = max(boundaries[-1], end)
        else:
            boundaries += start, end
    return {str(partition): tuple(boundaries) for partition, boundaries in merged.items()}


def intersection_of(one: OffsetRanges, other: OffsetRanges) -> OffsetRanges:
    """Return the offsets that are in both."""
    return union_of(_common(partition, one[partition], other.get(partition, ())) for partition in one)


def difference_of(one: OffsetRanges, other: OffsetRanges) -> OffsetRanges:
    """Return the offsets of ``one`` that are not in ``other``."""
    return intersection_of(one, {partition: (0, *other.get(partition, ()), MAX_OFFSET) for partition in one})


def offsets_beyond(one: OffsetRanges, other: OffsetRanges) -> OffsetRanges:
    """Return the offsets of ``one`` that come after the end of ``other``, by partition; all where it has no end."""
    return intersection_of(one, {partition: ((0, *other.get(partition, ()))[-1], MAX_OFFSET) for partition in one})


def _common(partition: str, one: tuple[int, ...], other: tuple[int, ...]) -> OffsetRanges:
    found: list[int] = []
    mine, theirs = 0, 0
    while mine < len(one) and theirs < len(other):
        start, end = max(one[mine], other[theirs]), min(one[mine + 1], other[theirs + 1])
        if start < end:
            found += start, end
        if one[mine + 1] < other[theirs + 1]:
            mine += 2
        else:
            theirs += 2
    return {partition: tuple(found)}


def ranges_text(offsets: OffsetRanges) -> str:
    """Return the ranges as text, such as ``0: [10, 20), 1: [5, 7)``."""
    return ", ".join(f"{partition}: [{start}, {end})" for partition, start, end in ranges_of(offsets))

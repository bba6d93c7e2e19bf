"""Decides which offsets of a topic are new to a model; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import OffsetRanges, ranges_of
from wasmline.training.recorded_slice import Offsets, RecordedSlice

Range = tuple[int, int]
"""A half-open range of offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffsets:
    """A topic as it is: its beginning and end offsets, and those of the times of a request."""

    topic: str
    topic_id: str
    beginning: Offsets
    end: Offsets
    times: Mapping[str, Offsets]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlice:
    """What is new by a request. ``times`` and ``forgotten`` are those of RecordedSlice."""

    offsets: OffsetRanges
    times: dict[str, Offsets]
    forgotten: int


def slices_of(recorded: Iterable[RecordedSlice], topic: str, topic_id: str) -> list[RecordedSlice]:
    """Return the slices of a topic; those of an earlier topic of its name are none of it."""
    return [each for each in recorded if (each.topic, each.topic_id) == (topic, topic_id)]


def decide_slice(request: SliceRequest, recorded: Iterable[RecordedSlice], topic: TopicOffsets) -> NewSlice:
    """Return the offsets from ``since`` to ``until`` that the topic has and no recorded slice.

    A time that was in the request of a recorded slice has the offsets that it had there: so slices of intervals touch,
    in any order and with late records.
    """
    slices = slices_of(recorded, topic.topic, topic.topic_id)
    times = {time: {**offsets, **_known(time, slices)} for time, offsets in topic.times.items()}
    taken = defaultdict[str, list[Range]](list)
    for number, start, end in sorted(chain.from_iterable(ranges_of(each.offsets) for each in slices)):
        taken[str(number)].append((start, end))
    offsets: dict[str, tuple[int, ...]] = {}
    forgotten = 0
    for partition in sorted(topic.end, key=int):
        beginning, until = topic.beginning[partition], _until(request, times, partition, topic.end[partition])
        since = _since(request, times, partition, until, taken[partition], beginning)
        forgotten += sum(last - first for first, last in _free(since, min(until, beginning), taken[partition]))
        if free := tuple(chain.from_iterable(_free(max(since, beginning), until, taken[partition]))):
            offsets[partition] = free
    return NewSlice(offsets=offsets, times=times, forgotten=forgotten)


def _known(time: str, slices: Iterable[RecordedSlice]) -> Offsets:
    """Return the offsets that recorded slices have for a time; of two, those of the first."""
    known: Offsets = {}
    for each in slices:
        known = {**each.times.get(time, {}), **known}
    return known


def _until(request: SliceRequest, times: Mapping[str, Offsets], partition: str, end: int) -> int:
    """Return where the slice ends in a partition; 0 for one that the request does not name."""
    if isinstance(request.until, int):
        return min(times[str(request.until)][partition], end)
    return end if request.until == "now" else min(request.until.get(partition, 0), end)


def _since(
    request: SliceRequest,
    times: Mapping[str, Offsets],
    partition: str,
    until: int,
    taken: Iterable[Range],
    beginning: int,
) -> int:
    """Return where the slice starts in a partition."""
    if isinstance(request.since, int):
        return times[str(request.since)][partition]
    if request.since == "beginning":
        return beginning
    return max((end for _, end in taken if end <= until), default=beginning)


def _free(start: int, end: int, taken: Iterable[Range]) -> Iterator[Range]:
    """Yield what lies between two offsets and in none of the ranges, which are in order."""
    for first, last in taken:
        if start < min(first, end):
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end

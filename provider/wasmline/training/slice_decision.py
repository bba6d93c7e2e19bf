"""Decides which offsets of a topic are new to a model; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import (
    MAX_OFFSET,
    OffsetRanges,
    count_offsets,
    difference_of,
    intersection_of,
    union_of,
)
from wasmline.printable import bounded_line
from wasmline.training.recorded_slice import Offsets, RecordedSlice


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
    """What is new by a request. ``times`` and ``forgotten`` are those of RecordedSlice.

    ``later`` counts the offsets of the topic that lie at or after ``until`` and are in no slice.
    """

    offsets: OffsetRanges
    times: dict[str, Offsets]
    forgotten: int
    later: int = 0


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
    asked: dict[str, tuple[int, int]] = {}
    rest: dict[str, tuple[int, int]] = {}
    for partition, end in topic.end.items():
        until = _until(request, times, partition, end)
        since = topic.beginning[partition]
        if isinstance(request.since, int):
            since = times[str(request.since)][partition]
        elif request.since == "previous":
            ends = (offset for each in slices for offset in each.offsets.get(partition, ())[1::2])
            since = max((offset for offset in ends if offset <= until), default=since)
        if since < until:
            asked[partition] = (since, until)
        rest[partition] = (max(until, topic.beginning[partition]), end)
    taken = union_of(each.offsets for each in slices)
    new = difference_of(asked, taken)
    held = {partition: (offset, MAX_OFFSET) for partition, offset in topic.beginning.items()}
    return NewSlice(
        offsets=intersection_of(new, held),
        times=times,
        forgotten=count_offsets(difference_of(new, held)),
        later=count_offsets(difference_of(rest, taken)),
    )


def passed_text(recorded: Sequence[RecordedSlice]) -> str:
    """Return what the topic of the newest slice held below the end of its slices, and none of them has; "" for nothing.

    Of each partition, that is since the beginning offset when the newest one was decided.
    """
    if not recorded:
        return ""
    newest = recorded[-1]
    taken = union_of(each.offsets for each in slices_of(recorded, newest.topic, newest.topic_id))
    held = {partition: (first, MAX_OFFSET) for partition, first in newest.beginning.items()}
    below = intersection_of({partition: (0, boundaries[-1]) for partition, boundaries in taken.items()}, held)
    if not (passed := count_offsets(difference_of(below, taken))):
        return ""
    return (
        f"{bounded_line(newest.topic)}: {passed:,} offsets below the end of the slices are in none: a run since the "
        "beginning takes them, and one since previous does not"
    )


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

"""Finds the slice of a run, or decides and records it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wasmline.errors import Conflict, InvalidTrainSpec
from wasmline.job_specs import SliceRequest, TrainSpec
from wasmline.offset_ranges import OffsetRanges, count_offsets, ranges_text, union_of
from wasmline.printable import bounded_line
from wasmline.training.dataset_slice import Dataset, of_slice
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.slice_decision import NewSlice, TopicOffsets, decide_slice, slices_of
from wasmline.training.slice_log import SliceLog

if TYPE_CHECKING:
    from wasmline.kafka import Topics

log = logging.getLogger(__name__)

MAX_TRIES = 100
"""Each try after the first follows another run's slice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipResult:
    """The result of a training that was not done: too few rows are new. Nothing was recorded.

    ``new_rows`` is None if they were not counted, because there are not even so many offsets. ``later_offsets`` are in
    no slice either, and lie at or after ``until``.
    """

    model: str
    topic: str
    offsets: OffsetRanges
    new_offsets: int
    new_rows: int | None
    min_new_rows: int
    later_offsets: int = 0
    run: str = ""
    skipped: Literal[True] = True
    spec_version: Literal[1] = 1

    @property
    def reason(self) -> str:
        """What was found, and what was asked for."""
        found = f"{self.new_offsets} offsets" if self.new_rows is None else f"{self.new_rows} usable rows"
        later = f"; {self.later_offsets} offsets lie at or after until" if self.later_offsets else ""
        return f"{self.topic} has {found} that are new to {self.model}, and min_new_rows is {self.min_new_rows}{later}"


def slice_of_run(
    spec: TrainSpec,
    request: SliceRequest,
    topic_now: Callable[[], TopicOffsets],
    usable_rows: Callable[[Dataset], int],
) -> RecordedSlice | SkipResult:
    """Return the recorded slice of the request's run; the first time, decide and record it.

    A run has one slice of a topic, and one more if the topic was created again. ``topic_now`` reads the topic as it is,
    and ``usable_rows`` counts those of a dataset. Raises InvalidTrainSpec if the slice of the run is of another
    interval, or if a topic without an id was created again; Conflict if other runs record slices all the time; and
    the errors of ``SliceLog``.
    """
    slices = SliceLog(spec.models)
    for _ in range(MAX_TRIES):
        history = slices.history(spec.model)
        topic = topic_now()
        known = slices_of(history, topic.topic, topic.topic_id)
        _require_same_topic(known, topic)
        if own := next((each for each in known if each.request.run == request.run), None):
            _require_same_interval(own, request)
            return own
        new = decide_slice(request, history, topic)
        if skipped := _skipped(spec, new, topic, usable_rows):
            if isinstance(request.until, int) and skipped.later_offsets and not skipped.new_offsets:
                log.warning(
                    "%s: a slice ends at the first record of %s or later. If records after it are older, its timestamp "
                    "is wrong, and they wait for a run until now",
                    *(spec.topic, request.until),
                )
            return skipped
        if recorded := slices.append(spec.model, len(history), new, request=request, topic=topic):
            log.info("%s: slice %d is %s", spec.model, recorded.number, ranges_text(recorded.offsets))
            if recorded.forgotten:
                log.warning("%s: retention removed %d offsets of the slice", spec.model, recorded.forgotten)
            return recorded
    raise Conflict(
        f"model {spec.model}: other runs recorded {MAX_TRIES} slices while run {request.run} decided on its own; retry",
        name=spec.model,
        generation=None,
    )


def topic_offsets(topics: Topics, name: str, request: SliceRequest) -> TopicOffsets:
    """Return what a decision needs to know of a topic. Raises TopicNotFound, BrokerUnavailable."""
    topic_id = topics.describe(name).id
    moments = [each for each in (request.since, request.until) if isinstance(each, int)]
    times = {str(each): _by_partition(topics.offsets_for_time(name, each)) for each in moments}
    beginning, end = _by_partition(topics.beginning_offsets(name)), _by_partition(topics.end_offsets(name))
    known = set.intersection(*(set(each) for each in (beginning, end, *times.values())))  # others were added meanwhile
    return TopicOffsets(
        topic=name,
        topic_id=topic_id,
        beginning={partition: beginning[partition] for partition in beginning if partition in known},
        end={partition: end[partition] for partition in end if partition in known},
        times=times,
    )


def _by_partition(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def _require_same_topic(slices: Sequence[RecordedSlice], topic: TopicOffsets) -> None:
    """Raise InvalidTrainSpec if a topic without an id ends before its slices do: then it is another one."""
    ends = {} if topic.topic_id else union_of(each.offsets for each in slices)
    for partition, boundaries in ends.items():
        if boundaries[-1] > (end := topic.end.get(partition, 0)):
            raise InvalidTrainSpec(
                f"partition {partition} of {topic.topic} ends at {end}, and slices of {slices[0].model} have its "
                f"offsets up to {boundaries[-1]}: the topic was created again. This cluster gives topics no ids, so "
                "train under another name of the model or of the topic",
                field="slice",
            )


def _require_same_interval(own: RecordedSlice, request: SliceRequest) -> None:
    """Raise InvalidTrainSpec if the slice of a run begins at another time than is asked for.

    Other bounds may differ when a run is repeated, such as ``until`` a task's own start; the slice stays the same.
    """
    recorded = own.request.since
    if isinstance(recorded, int) and isinstance(request.since, int) and recorded != request.since:
        raise InvalidTrainSpec(
            f"slice {own.number} of {own.model} is since {recorded}, and run {bounded_line(own.request.run)}, which "
            f"recorded it, asks for one since {request.since}: start another run, or set another slice_key",
            field="slice",
        )
    if own.request != request:
        log.warning(
            "%s: run %s asks for since=%s, until=%s, and keeps slice %d, which it recorded with since=%s, until=%s",
            *(own.model, bounded_line(request.run), request.since, request.until, own.number),
            *(recorded, own.request.until),
        )


def _skipped(
    spec: TrainSpec, new: NewSlice, topic: TopicOffsets, usable_rows: Callable[[Dataset], int]
) -> SkipResult | None:
    """Return the result for a slice with fewer rows than asked for; rows are counted only where they can be enough."""
    offsets, rows = count_offsets(new.offsets), None
    if offsets >= max(spec.min_new_rows, 1):
        if not spec.min_new_rows:
            return None
        rows = usable_rows(of_slice(spec, topic_id=topic.topic_id, offsets=new.offsets))
        if rows >= spec.min_new_rows:
            return None
    return SkipResult(
        model=spec.model,
        topic=spec.topic,
        offsets=new.offsets,
        new_offsets=offsets,
        new_rows=rows,
        min_new_rows=spec.min_new_rows,
        later_offsets=new.later,
    )

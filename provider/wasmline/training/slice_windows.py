"""Makes the windows of a run, unions of recorded slices, from the log of slices; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from wasmline.job_specs import TrainSpec
from wasmline.offset_ranges import MAX_OFFSET, OffsetRanges, intersection_of, union_of
from wasmline.training.dataset_slice import Dataset, of_slice
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.slice_decision import slices_of
from wasmline.training.window_choice import Window


def slice_dataset(spec: TrainSpec, own: RecordedSlice) -> Dataset:
    """Return the dataset of one slice."""
    return of_slice(spec, topic_id=own.topic_id, offsets=own.offsets)


def slice_windows(
    spec: TrainSpec, own: RecordedSlice, history: Iterable[RecordedSlice], *, kept: Collection[int] = ()
) -> list[Window]:
    """Return the windows of the run of a slice, from the longest to the shortest; of equal ones, the first.

    They have the slices that were recorded before this one and do not lie after it, in the order of the times at which
    they end: so a repetition of the run has the same windows, and a run of an earlier interval none of what came after.
    Offsets that retention had removed when the slice was decided are left out, unless the rows of their slice are
    ``kept``, which has the numbers of these.
    """
    recorded = (each for each in slices_of(history, own.topic, own.topic_id) if each.number < own.number)
    earlier_slices = sorted((each for each in recorded if not _lies_after(each, own)), key=_end_ms)
    before = [_held(each, own, kept) for each in earlier_slices]
    windows: dict[int, Window] = {}
    for name in sorted(spec.windows, key=_length, reverse=True):
        length = min(_length(name), len(before) + 1)
        earlier = union_of(before[-length:])
        windows.setdefault(
            length,
            Window(
                name=name,
                dataset=_dataset(spec, own, [*before, own.offsets][-length:]),
                before=_dataset(spec, own, [earlier]) if earlier else None,
            ),
        )
    return list(windows.values())


def records_of(spec: TrainSpec, own: RecordedSlice, windows: Sequence[Window]) -> Dataset:
    """Return the dataset of all records that the windows, and those before them, need."""
    datasets = [each for window in windows for each in (window.dataset, window.before) if each is not None]
    return _dataset(spec, own, [each.offsets for each in datasets])


def _dataset(spec: TrainSpec, own: RecordedSlice, parts: Iterable[OffsetRanges]) -> Dataset:
    return of_slice(spec, topic_id=own.topic_id, offsets=union_of(parts))


def _length(window: str) -> int:
    """Return the number of slices in a window; in ``all``, there are more than any other can have."""
    return 10**6 if window == "all" else int(window.removeprefix("last "))


def _lies_after(later: RecordedSlice, earlier: RecordedSlice) -> bool:
    """Whether a slice begins in some partition at or after the end of the other; by their times, if they share none."""
    common = later.offsets.keys() & earlier.offsets.keys()
    if not common:
        return _end_ms(later) > _end_ms(earlier)
    return any(later.offsets[each][0] >= earlier.offsets[each][-1] for each in common)


def _end_ms(each: RecordedSlice) -> int:
    """Return the time at which a slice ends: that of its ``until``, or when it was decided, if that was earlier."""
    until = each.request.until
    return min(until, each.decided_ms) if isinstance(until, int) else each.decided_ms


def _held(each: RecordedSlice, own: RecordedSlice, kept: Collection[int]) -> OffsetRanges:
    """Return the offsets of a slice that could be read when ``own`` was decided."""
    if each.number in kept:
        return each.offsets
    return intersection_of(each.offsets, {partition: (first, MAX_OFFSET) for partition, first in own.beginning.items()})

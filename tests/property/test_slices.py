"""Slices of any runs, in any order, of a topic that grows and forgets."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from hypothesis import event, given
from hypothesis import strategies as st

from support.eta_spec import SPEC
from wasmline.errors import InvalidTrainSpec
from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import OffsetRanges, ranges_of
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.run_slice import SkipResult, slice_of_run
from wasmline.training.slice_decision import TopicOffsets
from wasmline.training.slice_log import SliceLog
from wasmline.training.slice_windows import slice_windows

PARTITIONS = ("0", "1")
TIMES = range(1, 12)

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Topic:
    """The timestamps of the records of each partition, and its beginning offset."""

    times: dict[str, list[int]] = field(default_factory=lambda: {partition: [] for partition in PARTITIONS})
    beginning: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))

    def seen_for(self, request: SliceRequest) -> TopicOffsets:
        moments = [each for each in (request.since, request.until) if isinstance(each, int)]
        return TopicOffsets(
            topic="features",
            topic_id="t1",
            beginning=dict(self.beginning),
            end={partition: len(times) for partition, times in self.times.items()},
            times={str(each): self.offsets_for(each) for each in moments},
        )

    def offsets_for(self, moment: int) -> dict[str, int]:
        return {
            partition: next(
                (offset for offset in range(self.beginning[partition], len(times)) if times[offset] >= moment),
                len(times),
            )
            for partition, times in self.times.items()
        }

    def forget(self, partition: str, count: int) -> None:
        self.beginning[partition] = min(self.beginning[partition] + count, len(self.times[partition]))


@dataclass(frozen=True)
class Grow:
    partition: str
    times: list[int]


@dataclass(frozen=True)
class Forget:
    partition: str
    count: int


@dataclass(frozen=True)
class Run:
    """A run, and the changes that happen while it decides: others run, and the topic grows."""

    request: SliceRequest
    meanwhile: list[Change]


Change = Grow | Forget | Run


class World:
    """A topic, and the log of the slices of one model on a storage in memory."""

    def __init__(self) -> None:
        self.topic = Topic()
        self.spec = replace(SPEC, models=f"memory://{uuid.uuid4()}")
        self.slices: dict[str, RecordedSlice] = {}

    def apply(self, changes: list[Change]) -> None:
        for each in changes:
            if isinstance(each, Grow):
                self.topic.times[each.partition] += each.times
            elif isinstance(each, Forget):
                self.topic.forget(each.partition, each.count)
            else:
                self.run(each)

    def run(self, run: Run) -> None:
        meanwhile = list(run.meanwhile)

        def topic_now() -> TopicOffsets:
            seen = self.topic.seen_for(run.request)
            while meanwhile:
                self.apply([meanwhile.pop(0)])
            return seen

        try:
            found = slice_of_run(self.spec, run.request, topic_now, usable_rows=lambda dataset: dataset.offset_count)
        except InvalidTrainSpec:
            since = self.slices[run.request.run].request.since, run.request.since
            assert all(isinstance(each, int) for each in since)
            assert since[0] != since[1]
            return
        if isinstance(found, SkipResult):
            assert found.new_offsets == 0
            return
        if run.request.run not in self.slices:
            event("recorded")
            for partition, start, end in ranges_of(found.offsets):
                assert found.beginning[str(partition)] <= start < end <= len(self.topic.times[str(partition)])
        assert self.slices.setdefault(run.request.run, found) == found

    def history(self) -> list[RecordedSlice]:
        return SliceLog(self.spec.models).history("eta")

    def gaps(self) -> set[Place]:
        """Return the offsets between those of slices that no slice has, and that the topic still has."""
        covered = [place for each in self.history() for place in places(each.offsets)]
        assert len(covered) == len(set(covered))
        found: set[Place] = set()
        for partition in map(int, PARTITIONS):
            offsets = [offset for number, offset in covered if number == partition]
            first = max(min(offsets, default=0), self.topic.beginning[str(partition)])
            found |= {(partition, offset) for offset in range(first, max(offsets, default=0))}
        return found - set(covered)


def places(offsets: OffsetRanges) -> list[Place]:
    return [(partition, offset) for partition, start, end in ranges_of(offsets) for offset in range(start, end)]


moments = st.sampled_from(TIMES)
growth = st.builds(Grow, partition=st.sampled_from(PARTITIONS), times=st.lists(moments, min_size=1, max_size=4))
retention = st.builds(Forget, partition=st.sampled_from(PARTITIONS), count=st.integers(1, 3))
run_names = st.sampled_from([f"dag/{number}" for number in range(6)])
ends = st.one_of(
    st.just("now"), moments, st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 12), min_size=1, max_size=2)
)
intervals = st.lists(moments, min_size=2, max_size=2, unique=True).map(sorted)
continued = st.builds(SliceRequest, run=run_names, until=ends)
any_request = st.one_of(
    continued,
    st.builds(SliceRequest, run=run_names, since=st.just("beginning"), until=ends),
    st.builds(lambda run, pair: SliceRequest(run=run, since=pair[0], until=pair[1]), run_names, intervals),
)


def histories(requests: st.SearchStrategy[SliceRequest]) -> st.SearchStrategy[list[Change]]:
    """Return changes of which each run may be interrupted by others, and these by others again."""
    changes: st.SearchStrategy[list[Change]] = st.lists(growth | retention, max_size=2)
    for size in (2, 3, 12):
        changes = st.lists(st.one_of(growth, retention, st.builds(Run, requests, changes)), max_size=size)
    return changes


@given(histories(any_request))
def test_slices_of_any_runs_never_overlap_and_a_run_asked_again_gets_its_own(changes: list[Change]) -> None:
    world = World()
    world.apply(changes)
    world.gaps()  # counts each offset once
    for run in world.slices:
        world.run(Run(SliceRequest(run=run, since="beginning"), []))
    assert len(world.history()) == len(world.slices)


@given(histories(continued))
def test_slices_that_begin_where_the_one_before_ends_cover_the_topic_without_gap(changes: list[Change]) -> None:
    world = World()
    world.apply(changes)
    assert not world.gaps()


@given(st.permutations(range(1, 11)), st.lists(st.lists(growth, max_size=3), min_size=10, max_size=10), retention)
def test_ten_intervals_in_any_order_touch_though_records_come_late(
    days: list[int], late: list[list[Grow]], forget: Forget
) -> None:
    world = World()
    newest = 0
    for day, changes in zip(days, late, strict=True):
        for each in range(newest + 1, day + 1):
            world.topic.times["0"].append(each)
        newest = max(newest, day)
        world.apply([replace(each, times=[min(time, newest) for time in each.times]) for each in changes])
        world.run(Run(SliceRequest(run=f"dag/{day}", since=day, until=day + 1), []))
        world.topic.forget("1", forget.count)
    assert len(world.history()) == 10
    assert not world.gaps()


@given(histories(any_request))
def test_a_repeated_run_has_the_same_windows(changes: list[Change]) -> None:
    world = World()
    world.apply(changes)
    spec = replace(world.spec, slice=SliceRequest(run="dag/0"), windows=("last 1", "all", "last 2"))
    history = world.history()
    for own in history:
        windows = slice_windows(spec, own, history)
        assert windows == slice_windows(spec, own, history[: own.number])
        lengths = [each.dataset.offset_count for each in windows]
        assert lengths == sorted(lengths, reverse=True)
        assert set(places(own.offsets)) <= set(places(windows[-1].dataset.offsets))
        for each in windows:
            before = set(places(each.before.offsets)) if each.before else set()
            assert not before & set(places(own.offsets))

"""Slices of runs that events start: whatever happens to the events, the slices cover the topic once."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from support.eta_spec import SPEC
from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import ranges_of, union_of
from wasmline.training.run_slice import SkipResult, slice_of_run
from wasmline.training.slice_decision import TopicOffsets
from wasmline.training.slice_log import SliceLog

PARTITIONS = ("0", "1", "2")

Ends = dict[str, int]


class Nights:
    """A topic that grows, the events about it that are under way, and the runs that they start."""

    def __init__(self, models: str) -> None:
        self.spec = replace(SPEC, models=models)
        self.ends: Ends = dict.fromkeys(PARTITIONS, 0)
        self.events: list[Ends] = []
        self.runs: list[SliceRequest] = []
        self.skipped = 0

    def write(self, partition: str, records: int) -> None:
        self.ends[partition] += records

    def run(self, request: SliceRequest) -> None:
        if request not in self.runs:
            self.runs.append(request)
        topic = TopicOffsets(
            topic="features",
            topic_id="t1",
            beginning=dict.fromkeys(PARTITIONS, 0),
            end=dict(self.ends),
            times={},
        )
        found = slice_of_run(self.spec, request, lambda: topic, lambda _: 0)
        self.skipped += isinstance(found, SkipResult)

    def next_request(self, until: Ends | None) -> SliceRequest:
        return SliceRequest(run=f"retrain/{len(self.runs)}", until="now" if until is None else until)


@given(st.data())
def test_events_that_are_lost_doubled_and_reordered_leave_no_gap_and_no_overlap(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as models:
        nights = Nights(models)
        steps = st.lists(st.sampled_from(["write", "emit", "lose", "double", "run", "repeat", "form"]), max_size=40)
        for step in data.draw(steps):
            if step == "write":
                nights.write(data.draw(st.sampled_from(PARTITIONS)), data.draw(st.integers(1, 9)))
            elif step == "emit":
                nights.events.append(dict(nights.ends))
            elif step == "form":
                nights.run(nights.next_request(None))
            elif step == "repeat" and nights.runs:
                nights.run(data.draw(st.sampled_from(nights.runs)))
            elif nights.events:
                place = data.draw(st.integers(0, len(nights.events) - 1))
                if step == "double":
                    nights.events.append(nights.events[place])
                else:
                    until = nights.events.pop(place)
                    if step == "run":
                        nights.run(nights.next_request(until))
        nights.run(nights.next_request(None))
        slices = SliceLog(models).history("eta")  # raises where two overlap
        written = {partition: (0, end) for partition, end in nights.ends.items() if end}
        assert union_of(each.offsets for each in slices) == written
        assert sum(end - start for each in slices for _, start, end in ranges_of(each.offsets)) == sum(
            nights.ends.values()
        )
        event(f"slices: {len(slices)}")
        event(f"runs without a slice: {min(nights.skipped, 5)}")

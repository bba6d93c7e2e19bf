"""The decision how a run is ensured, without a cluster."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.control import JobOrder
from wasmline.errors import JobBusy
from wasmline.job_specs import FunctionSpec, JobSpec, StreamSpec, TrainSpec
from wasmline_provider.run_decision import CurrentRun, decide
from wasmline_provider.stream_changes import UPDATABLE_FIELDS, can_update_in_place, changed_fields

FUNCTION = FunctionSpec(function="enrich:one", topic="orders")
PARALLEL = StreamSpec(function=FUNCTION, mode="parallel", trigger_interval="1 second")
TRAIN = TrainSpec(
    model="eta", topic="t", models="m", fields={"id": "string", "km": "double", "min": "double"}, features=("km",),
    target="min", identity="id",
)  # fmt: skip


def job(run: str = "owner-1", **changes: Any) -> JobSpec:
    return JobSpec(job="j", run=run, storage="s", **{"stream": PARALLEL, **changes})


def current(spec: JobSpec, *, live: bool = True, **order: Any) -> CurrentRun:
    return CurrentRun(order=JobOrder(spec=spec, **{"wanted": "running", **order}), is_live=live)


def action(found: CurrentRun | None, spec: JobSpec, *, owner: str = "other", restart_stopped: bool = True) -> str:
    return decide(found, spec, owner, "digest", restart_stopped=restart_stopped).action


@given(
    live=st.booleans(),
    wanted=st.sampled_from(["running", "stopped"]),
    stopped_by=st.sampled_from(["", "user", "system"]),
    restart_stopped=st.booleans(),
    changes=st.fixed_dictionaries({}, optional={"tasks": st.just(2), "delivery": st.just("exactly_once")}),
)
def test_a_continuous_stream_is_live_afterwards_unless_a_user_stopped_it(
    live: bool, wanted: str, stopped_by: str, restart_stopped: bool, changes: dict[str, Any]
) -> None:
    found = current(job(), live=live, wanted=wanted, stopped_by=stopped_by)
    chosen = action(found, job("", stream=replace(PARALLEL, **changes)), restart_stopped=restart_stopped)
    stays_stopped = wanted == "stopped" and stopped_by != "system" and not restart_stopped
    assert (chosen == "left_stopped") == stays_stopped
    if not stays_stopped:
        assert (chosen == "started") == (not live)
        if chosen in ("adopted", "updated"):
            assert wanted == "running"
            assert "delivery" not in changes
            assert (chosen == "adopted") == (not changes)


def test_a_job_that_nobody_has_ordered_is_started() -> None:
    assert action(None, job("")) == "started"


@pytest.mark.parametrize("ends", [job(stream=replace(PARALLEL, trigger_interval=None)), job(stream=None, train=TRAIN)])
def test_a_run_that_ends_by_itself_is_its_owners(ends: JobSpec) -> None:
    assert action(current(ends), replace(ends, run=""), owner="owner") == "adopted"
    with pytest.raises(JobBusy, match="wait for its end, or stop it with wasmline stop j") as busy:
        action(current(ends), replace(ends, run=""))
    assert "name" not in str(busy.value)


def test_other_submit_settings_restart_a_run_and_unknown_ones_do_not() -> None:
    assert action(current(job(), submit_digest="older"), job("")) == "restarted"
    assert action(current(job(), submit_digest=""), job("")) == "adopted"
    assert action(current(job(), submit_digest="digest"), job("")) == "adopted"


OTHER_FUNCTION = replace(FUNCTION, function="enrich:two")
TRANSFORM = StreamSpec(transform="t", trigger_interval="1 second")


@pytest.mark.parametrize(
    ("changed", "names", "live"),
    [
        (job(stream=replace(PARALLEL, tasks=3, ordering="unordered")), "stream.ordering stream.tasks", True),
        (
            job(stream=replace(PARALLEL, function=replace(FUNCTION, max_attempts=3))),
            "stream.function.max_attempts",
            True,
        ),
        (job(stream=replace(PARALLEL, function=OTHER_FUNCTION)), "stream.function.function", False),
        (job(stream=replace(PARALLEL, trigger_interval="2 seconds")), "stream.trigger_interval", True),
        (job(stream=replace(PARALLEL, trigger_interval=None)), "stream.trigger_interval", False),
        (job(stream=TRANSFORM), "stream.function stream.mode stream.transform", False),
        (replace(job(), storage="elsewhere"), "storage", False),
        (job(metrics_port=0), "metrics_port", False),
        (job(stream=None, train=TRAIN), "stream train", False),
    ],
)
def test_changes_are_named_and_leases_take_some_over(changed: JobSpec, names: str, live: bool) -> None:
    assert " ".join(changed_fields(job(), changed)) == names
    assert can_update_in_place(job(), changed) == live


def test_each_live_field_exists() -> None:
    known = {each.name for each in fields(StreamSpec)} | {f"function.{each.name}" for each in fields(FunctionSpec)}
    assert known.issuperset(frozenset().union(*UPDATABLE_FIELDS.values()))


def test_a_retry_leaves_a_run_that_a_user_has_stopped_meanwhile_and_another_task_starts_it() -> None:
    stopped = current(job("adopted"), live=False, wanted="stopped", stopped_by="user")
    assert decide(stopped, job(""), "o", "digest", restart_stopped=True, earlier_run="adopted").action == "left_stopped"
    assert decide(stopped, job(""), "o", "digest", restart_stopped=True, earlier_run="older").action == "started"

"""The end of a run, decided from its order, its reports and the time without them."""

from dataclasses import replace
from typing import Any

import pytest

from wasmline.control import JobOrder, LaunchRequest, RunReading
from wasmline.errors import BrokerUnavailable, UnsupportedSpecVersion
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline_provider.job_client import JobRun
from wasmline_provider.run_monitor import (
    MonitoringFollower,
    ReadFailure,
    ReportLine,
    RunEnd,
    RunEvent,
    RunMonitor,
    SparkUi,
    format_report,
)

RUN = JobRun(job="j", run="r", log="driver.log")
ORDER = JobOrder(
    spec=JobSpec(job="j", run="r", storage="s", stream=StreamSpec(transform="t", trigger_interval="1 second")),
    wanted="running",
)
NEWER = replace(ORDER, spec=replace(ORDER.spec, run="newer"))
DAY_S = 86_400.0


def report(state: JobState = JobState.RUNNING, updated_ms: int = 1, **more: Any) -> JobReport:
    return JobReport(job="j", run="r", state=state, updated_ms=updated_ms, **more)


def monitor() -> RunMonitor:
    return RunMonitor(RUN, heartbeat_s=120, now=0)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.STOPPED, JobState.FAILED])
@pytest.mark.parametrize("order", [ORDER, NEWER, None])
def test_a_last_report_is_the_end(state: JobState, order: JobOrder | None) -> None:
    last = report(state, message="why", error="GuestTrap" if state is JobState.FAILED else None)
    assert monitor().observe(order, last, 1) == RunEnd(state=state.value, message="why")  # type: ignore[arg-type]


def test_a_heartbeat_is_a_changed_time_whatever_the_clocks() -> None:
    watch = monitor()
    for now, updated_ms in ((119, 7_000_000), (238, 5), (357, 4)):
        assert watch.observe(ORDER, report(updated_ms=updated_ms), now) is None
    assert watch.observe(ORDER, report(updated_ms=4), 357 + 120) is None
    end = watch.observe(ORDER, report(updated_ms=4), 357 + 121)
    assert end is not None
    assert end.state == "lost"
    assert "no heartbeat for 120 s (run r, last report: job j running). Its driver's output is in driver.log" in (
        end.message
    )


def test_a_run_without_any_report_is_lost_after_the_heartbeat_s_time() -> None:
    watch = monitor()
    assert watch.observe(ORDER, None, 120) is None
    end = watch.observe(ORDER, None, 121)
    assert end is not None
    assert "last report: none" in end.message


def test_time_in_which_nothing_could_be_read_is_not_a_missing_heartbeat() -> None:
    watch = monitor()
    watch.observe(ORDER, report(), 10)
    watch.reset_heartbeat(DAY_S)
    assert watch.observe(ORDER, report(), DAY_S) is None
    assert watch.observe(ORDER, report(), DAY_S + 120) is None
    end = watch.observe(ORDER, report(), DAY_S + 121)
    assert end is not None
    assert end.state == "lost"


@pytest.mark.parametrize("last", [None, report(), report(JobState.FAILED, error="Fenced", message="a newer driver")])
def test_a_run_that_a_newer_one_replaced_ends_with_its_name(last: JobReport | None) -> None:
    end = monitor().observe(NEWER, last, 1)
    assert end is not None
    assert (end.state, end.replaced_by) == ("replaced", "newer")
    assert "job j was replaced by run newer" in end.message


def test_a_driver_that_another_of_its_own_run_fenced_has_failed() -> None:
    end = monitor().observe(ORDER, report(JobState.FAILED, error="Fenced"), 1)
    assert end is not None
    assert end.state == "failed"


LAUNCHED = replace(ORDER, launch=LaunchRequest(launcher="l"))


def test_a_driver_that_a_launcher_starts_again_does_not_end_the_run() -> None:
    watch, failed = monitor(), report(JobState.FAILED, updated_ms=2, error="JobFailed", message="killed")
    assert watch.observe(LAUNCHED, report(), 1) is None
    assert watch.observe(LAUNCHED, failed, 120) is None
    assert watch.progress == "job j failed: killed"
    assert watch.observe(LAUNCHED, report(JobState.STARTING, updated_ms=3), 121) is None
    assert watch.observe(LAUNCHED, report(updated_ms=4), 240) is None
    assert watch.observe(LAUNCHED, replace(failed, updated_ms=5), 360) is None
    assert watch.observe(LAUNCHED, replace(failed, updated_ms=5), 361) == RunEnd(state="failed", message="killed")


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (ORDER, "JobFailed"),
        (LAUNCHED, "ProgressLost"),
        (replace(LAUNCHED, wanted="stopped", stopped_by="user"), "JobFailed"),
        (replace(LAUNCHED, spec=replace(LAUNCHED.spec, stream=StreamSpec(transform="t"))), "JobFailed"),
        (replace(LAUNCHED, spec=NEWER.spec), "JobFailed"),
    ],
    ids=["without a launcher", "an error that no restart cures", "stopped", "bounded", "replaced"],
)
def test_a_failure_that_no_launcher_mends_is_the_end(order: JobOrder, error: str) -> None:
    watch = monitor()
    assert watch.observe(order, report(), 1) is None or order.spec.run != RUN.run
    end = watch.observe(order, report(JobState.FAILED, updated_ms=2, error=error, message="why"), 2)
    assert end == RunEnd(state="failed", message="why")


def test_a_job_that_was_deleted_is_lost_at_once() -> None:
    end = monitor().observe(None, None, 1)
    assert end is not None
    assert end.state == "lost"
    assert "it was deleted" in end.message


class Followed:
    """A follower with its events and a clock."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self.now = 0.0
        self.follower = MonitoringFollower(RUN, self.events.append, heartbeat_s=120, clock=lambda: self.now)

    def read(self, last: JobReport | None = None, order: JobOrder | None = ORDER) -> None:
        self.follower.on_reading(RunReading(order=order, report=last))


def test_each_change_and_the_end_are_told_once() -> None:
    seen = Followed()
    for last in (report(), report(updated_ms=2), report(updated_ms=3, message="2 rows")):
        seen.read(last)
    seen.read(report(JobState.SUCCEEDED))
    seen.read(report(JobState.SUCCEEDED))
    assert seen.events == [
        ReportLine(line="job j running"),
        ReportLine(line="job j running: 2 rows"),
        ReportLine(line="job j succeeded"),
        RunEnd(state="succeeded", message=""),
    ]


def test_the_driver_s_ui_is_told_when_it_is_there_and_when_it_has_gone() -> None:
    seen = Followed()
    for last in (report(), report(spark_ui="http://d:4040"), report(spark_ui="http://d:4040", updated_ms=2), report()):
        seen.read(last)
    assert seen.events == [
        ReportLine(line="job j running"),
        SparkUi(url="http://d:4040"),
        SparkUi(url=""),
    ]


def test_a_cluster_that_is_away_for_a_day_ends_nothing() -> None:
    seen, error = Followed(), BrokerUnavailable("no broker answered", bootstrap_servers="nowhere:1")
    seen.read(report())
    seen.now = DAY_S
    seen.follower.on_error(error)
    seen.follower.on_interruption()
    seen.read(report())
    seen.read(report())
    assert seen.events == [ReportLine(line="job j running"), ReadFailure(error=error), ReadFailure(error=None)]
    seen.now += 121
    seen.read(report())
    assert isinstance(seen.events[-1], RunEnd)


def test_a_report_of_another_release_ends_the_waiting_with_its_reason() -> None:
    seen = Followed()
    seen.follower.on_reading(RunReading(error=UnsupportedSpecVersion("spec_version is 2")))
    assert seen.events == [RunEnd(state="lost", message="spec_version is 2")]


def test_progress_names_the_most_frequent_reasons() -> None:
    dead = {"GuestTrap": 5, "Rejected: negative": 3, "GuestTimeout": 2, "GuestExit": 1}
    last = report(result={"records_in": 50, "records_out": 39, "dead_letters": dead})
    assert format_report(last) == (
        "job j running: 50 records in, 39 out, 11 dead letters (5 GuestTrap, 3 Rejected: negative, 2 GuestTimeout)"
    )


@pytest.mark.parametrize(
    "result",
    [
        {"records_in": 5},
        {"records_in": "5", "records_out": 1},
        {"records_in": 5, "records_out": 4, "dead_letters": [1]},
    ],
)
def test_a_report_whose_totals_cannot_be_read_ends_the_run_like_any_other(result: dict[str, Any]) -> None:
    last = report(JobState.FAILED, message="why", result=result)
    assert monitor().observe(ORDER, last, 1) == RunEnd(state="failed", message="why")
    assert format_report(last) == "job j failed: why"

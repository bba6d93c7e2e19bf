"""Detection of dead runs over a table of orders and reports, with a clock of the test's."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from wasmline.control import DeadRunDetector, JobOrder
from wasmline.control.dead_runs import EVENT_DELAYS
from wasmline.errors import BrokerUnavailable, JobNotFound, UnsupportedSpecVersion
from wasmline.job_specs import (
    DRIVER_HEARTBEAT_TIMEOUT_S,
    DRIVER_START_TIMEOUT_S,
    JobReport,
    JobSpec,
    JobState,
    StreamSpec,
)

SPEC = JobSpec(job="j", run="run-1", storage="s", stream=StreamSpec(transform="t", trigger_interval="1 second"))


class Table:
    """The orders and reports of one job, and the time, which passes while a report is read, too."""

    def __init__(self, interval_s: float = 10_000.0) -> None:
        self.reading_s = 0.0
        self.now = 0.0
        self.found: JobOrder | Exception = JobOrder(spec=SPEC, wanted="running")
        self.last: JobReport | None = None
        self.unreadable: Exception | None = None
        self.detector = DeadRunDetector(["j"], interval_s=interval_s, clock=lambda: self.now)

    def order(self, job: str) -> JobOrder:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def report(self, job: str, run: str) -> JobReport | None:
        self.now += self.reading_s
        if isinstance(self.unreadable, Exception):
            raise self.unreadable
        return self.last

    def tell(self, state: JobState, error: str | None = None, updated_ms: int = 1, message: str = "why") -> None:
        self.last = JobReport(job="j", run="run-1", state=state, updated_ms=updated_ms, error=error, message=message)

    def poll(self, after: float = 0.0) -> list[str]:
        self.now += after
        return [dead.state for dead in self.detector.poll(self)]  # type: ignore[arg-type]


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_failed_run_is_told_at_once_and_again_after_growing_delays(table: Table) -> None:
    table.tell(JobState.FAILED, error="JobFailed")
    assert table.poll() == ["failed"]
    told = [table.now]
    for _ in range(2_000):
        if table.poll(after=1.0):
            told.append(table.now)
    pauses = [later - earlier for earlier, later in itertools.pairwise(told)]
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0]
    assert max(pauses) < EVENT_DELAYS.max_delay_s


def test_a_healthy_while_begins_with_the_first_delay_again(table: Table) -> None:
    table.tell(JobState.FAILED)
    for after in (0.0, 10.0, 20.0):
        assert table.poll(after) == ["failed"]
    for beat in range(30):
        table.tell(JobState.RUNNING, updated_ms=beat)
        assert table.poll(5.0) == []
    table.tell(JobState.FAILED)
    assert table.poll() == ["failed"]
    assert table.poll(10.0) == ["failed"]


def test_heartbeats_are_reports_that_change_whatever_their_times(table: Table) -> None:
    for beat in range(20):
        table.tell(JobState.RUNNING, updated_ms=1_000_000 - beat)
        assert table.poll(DRIVER_HEARTBEAT_TIMEOUT_S - 1) == []
    assert table.poll(DRIVER_HEARTBEAT_TIMEOUT_S - 1) == []
    assert table.poll(1.0) == ["lost"]


def test_an_order_that_nobody_begins_to_carry_out_is_lost_as_soon_as_a_running_driver(table: Table) -> None:
    table.tell(JobState.STARTING, message="")
    assert table.poll() == []
    assert table.poll(DRIVER_HEARTBEAT_TIMEOUT_S - 1) == []
    assert table.poll(1.0) == ["lost"]


def test_spark_has_more_time_to_start(table: Table) -> None:
    table.tell(JobState.STARTING, message="")
    assert table.poll() == []
    table.tell(JobState.STARTING, message="spark-submit started")
    assert table.poll() == []
    assert table.poll(DRIVER_START_TIMEOUT_S - 1) == []
    assert table.poll(1.0) == ["lost"]


def test_time_in_which_the_cluster_is_away_is_no_missing_heartbeat(table: Table) -> None:
    table.tell(JobState.RUNNING)
    assert table.poll() == []
    table.unreadable = BrokerUnavailable("away", bootstrap_servers="x")
    with pytest.raises(BrokerUnavailable):
        table.poll(10 * DRIVER_HEARTBEAT_TIMEOUT_S)
    table.unreadable = None
    assert table.poll(1.0) == []
    assert table.poll(DRIVER_HEARTBEAT_TIMEOUT_S) == ["lost"]


@pytest.mark.parametrize(("reading_s", "after_s"), [(60.0, 0.0), (0.0, 3_600.0)], ids=["slow", "frozen"])
def test_a_reading_that_is_late_and_succeeds_is_no_missing_heartbeat(reading_s: float, after_s: float) -> None:
    table = Table(interval_s=5.0)
    table.tell(JobState.RUNNING)
    assert table.poll() == []
    table.reading_s = reading_s
    assert table.poll(5.0 + after_s) == []
    table.reading_s = 0.0
    for _ in range(int(DRIVER_HEARTBEAT_TIMEOUT_S / 5) - 1):
        assert table.poll(5.0) == []
    assert table.poll(5.0) == ["lost"]


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"wanted": "stopped", "stopped_by": "user"}, None),
        ({"wanted": "stopped"}, None),  # of an earlier release
        ({"spec": replace(SPEC, stream=StreamSpec(transform="t"))}, None),
        ({}, "ProgressLost"),
        ({}, "InvalidJob"),
    ],
)
def test_a_run_that_nobody_wants_or_no_restart_cures_is_not_told(
    table: Table, order: dict[str, Any], error: str | None
) -> None:
    table.found = replace(JobOrder(spec=SPEC, wanted="running"), **order)
    table.tell(JobState.FAILED, error=error)
    assert table.poll() == []
    assert table.poll(10_000.0) == []


def test_a_run_that_the_system_stopped_is_wanted(table: Table) -> None:
    table.found = JobOrder(spec=SPEC, wanted="stopped", stopped_by="system")
    table.tell(JobState.STOPPED)
    assert table.poll() == ["stopped"]


def test_an_order_that_is_not_there_or_cannot_be_read_is_passed_over(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.found = JobNotFound("no job", job="j")
    assert table.poll() == []
    table.found = UnsupportedSpecVersion("of a newer release")
    for _ in range(3):
        assert table.poll() == []
    assert caplog.text.count("of a newer release") == 1
    table.found = BrokerUnavailable("away", bootstrap_servers="x")
    with pytest.raises(BrokerUnavailable):
        table.poll()


def test_a_report_that_cannot_be_read_hides_no_other_job_and_is_told_again_after_it_was_readable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = TwoJobs()
    jobs.reports["a"] = UnsupportedSpecVersion("of a newer release")
    assert jobs.poll() == ["b"]
    jobs.reports["a"] = JobReport.now("a", "run-1", JobState.RUNNING)
    assert jobs.poll() == []
    jobs.reports["a"] = UnsupportedSpecVersion("of a newer release")
    assert jobs.poll() == jobs.poll() == []
    assert caplog.text.count("of a newer release") == 2


def test_no_event_is_lost_if_the_cluster_is_away_in_the_middle_of_a_poll() -> None:
    jobs = TwoJobs()
    jobs.reports["a"] = jobs.reports["b"]
    jobs.reports["b"] = BrokerUnavailable("away", bootstrap_servers="x")
    with pytest.raises(BrokerUnavailable):
        jobs.poll()
    jobs.reports["b"] = JobReport.now("b", "run-1", JobState.RUNNING)
    assert jobs.poll() == ["a"]


class TwoJobs:
    """The reports of two jobs; that of ``b`` is dead at first."""

    def __init__(self) -> None:
        self.reports: dict[str, JobReport | Exception] = {"b": JobReport.now("b", "run-1", JobState.FAILED)}
        self.detector = DeadRunDetector(["a", "b"], interval_s=5.0, clock=lambda: 0.0)

    def order(self, job: str) -> JobOrder:
        return JobOrder(spec=replace(SPEC, job=job), wanted="running")

    def report(self, job: str, run: str) -> JobReport:
        found = self.reports[job]
        if isinstance(found, Exception):
            raise found
        return found

    def poll(self) -> list[str]:
        return [dead.job for dead in self.detector.poll(self)]  # type: ignore[arg-type]


def test_runs_that_processed_records_before_they_died_are_told_of_without_a_growing_delay(table: Table) -> None:
    """A driver may be killed again and again within seconds after it is at work; that is no failure of its own."""
    for number in range(5):
        run = f"run-{number}"
        table.found = JobOrder(spec=replace(SPEC, run=run), wanted="running")
        table.last = JobReport(
            job="j", run=run, state=JobState.FAILED, updated_ms=1, error="JobFailed", result={"records_in": 1}
        )
        assert table.poll(1.0) == ["failed"]
        assert table.poll(9.0) == []
    assert table.poll(1.0) == ["failed"]

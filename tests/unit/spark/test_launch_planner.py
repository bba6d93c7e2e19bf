"""The drivers that a launcher starts: once, again after a death, later each time, and never beside a living one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.control import JobOrder, Launch, LaunchRequest
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.restart_policy import RestartPolicy
from wasmline.spark.launch_planner import (
    Abandon,
    Action,
    Adopt,
    JobRecords,
    LaunchPlanner,
    LaunchTimings,
    Start,
    WriteFinalReport,
)

POLICY = RestartPolicy(first_delay_s=1, max_delay_s=16, healthy_s=60)
TIMINGS = LaunchTimings(start_timeout_s=120, heartbeat_timeout_s=30)

STREAM = JobSpec(job="j", run="r1", storage="s", stream=StreamSpec(transform="t", trigger_interval="1 second"))
BOUNDED = replace(STREAM, stream=StreamSpec(transform="t"))


class Cluster:
    """The records of one job, a launcher that does what its planner says, and drivers to kill."""

    def __init__(self, spec: JobSpec = STREAM) -> None:
        self.now = 1_000.0
        self.planner = self.new_planner()
        self.records = JobRecords(order=JobOrder(spec=spec, wanted="running", launch=LaunchRequest(launcher="l")))
        self.ended: set[str] = set()
        self.starts = 0
        self.updated_ms = 0

    @staticmethod
    def new_planner() -> LaunchPlanner:
        return LaunchPlanner("l", POLICY, TIMINGS)

    def report(self, state: JobState, error: str | None = None) -> None:
        self.updated_ms += 1
        run = self.records.order.spec.run
        report = JobReport(job="j", run=run, state=state, updated_ms=self.updated_ms, error=error)
        self.records = replace(self.records, report=report)

    def launched(self, run: str = "r1", attempt: int = 1) -> None:
        """Record a launch, as another process did."""
        launch = Launch(
            run=run, launch="other", launcher="l", host="h", log="/l", attempt=attempt, launched_ms=self.updated_ms
        )
        self.records = replace(self.records, launch=launch)

    def want(self, wanted: str, run: str = "r1") -> None:
        spec = replace(self.records.order.spec, run=run)
        self.records = replace(self.records, order=replace(self.records.order, spec=spec, wanted=wanted))  # type: ignore[arg-type]

    def step(self, seconds: float = 0.0) -> list[Action]:
        """Let time pass, plan once, and record the starts."""
        self.now += seconds
        actions = self.planner.plan({"j": self.records}, self.ended, self.now)
        for action in actions:
            if isinstance(action, Start):
                self.starts += 1
                launch = Launch(
                    run=action.run,
                    launch=f"launch-{self.starts}",
                    launcher="l",
                    host="h",
                    log="/l",
                    attempt=action.attempt,
                    launched_ms=self.updated_ms,
                )
                self.records = replace(self.records, launch=launch)
                self.report(JobState.STARTING)
            elif isinstance(action, WriteFinalReport):
                self.report(action.state, "JobFailed" if action.state is JobState.FAILED else None)
        return actions

    def until_start(self, seconds: float) -> float:
        """Return after how many seconds a driver is started, looked at every half; raise if not within ``seconds``."""
        for half in range(int(seconds * 2)):
            if any(isinstance(action, Start) for action in self.step(0.5)):
                return (half + 1) / 2
        raise AssertionError(f"nothing was started within {seconds} s")

    def run_healthily(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.report(JobState.RUNNING)
            assert self.step(5) == []


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_an_order_is_launched_once(cluster: Cluster) -> None:
    cluster.report(JobState.STARTING)
    assert cluster.step() == [Start(job="j", run="r1", attempt=1, reason="ordered")]
    assert cluster.step(1) == []
    cluster.run_healthily(600)
    assert cluster.starts == 1


def test_orders_of_others_are_left_alone(cluster: Cluster) -> None:
    for launch in (None, LaunchRequest(launcher="another")):
        records = replace(cluster.records, order=replace(cluster.records.order, launch=launch))
        assert cluster.planner.plan({"j": records}, (), cluster.now) == []


def test_a_driver_that_failed_by_what_may_pass_is_started_again_later_each_time(cluster: Cluster) -> None:
    cluster.step()
    delays = []
    for _ in range(7):
        cluster.report(JobState.FAILED, "BrokerUnavailable")
        cluster.step()
        delays.append(cluster.until_start(20))
    assert delays == [1, 2, 4, 8, 16, 16, 16]


def test_a_healthy_while_resets_the_delay(cluster: Cluster) -> None:
    cluster.step()
    for _ in range(4):
        cluster.report(JobState.FAILED, "JobFailed")
        cluster.until_start(20)
    cluster.report(JobState.RUNNING)
    cluster.step(1)
    cluster.run_healthily(70)
    cluster.report(JobState.FAILED, "JobFailed")
    cluster.step()
    assert cluster.until_start(20) == 1


@pytest.mark.parametrize("error", ["ProgressLost", "InvalidJob", "Fenced"])
def test_an_error_that_no_restart_cures_ends_it_and_is_said_once(cluster: Cluster, error: str) -> None:
    cluster.step()
    cluster.report(JobState.FAILED, error)
    assert cluster.step(1) == [Abandon(job="j", run="r1", error=error)]
    assert cluster.step(1_000) == []


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.STOPPED])
def test_a_run_that_ended_well_stays_ended(cluster: Cluster, state: JobState) -> None:
    cluster.step()
    cluster.report(state)
    assert cluster.step(1_000) == []


@pytest.mark.parametrize(("state", "timeout"), [(JobState.STARTING, 120), (JobState.RUNNING, 30)])
def test_a_driver_without_heartbeats_is_replaced(cluster: Cluster, state: JobState, timeout: float) -> None:
    cluster.step()
    cluster.report(state)
    cluster.step(1)
    assert timeout < cluster.until_start(300) <= timeout + 2
    assert cluster.starts == 2


def test_a_driver_whose_supervisor_is_gone_is_replaced_at_once(cluster: Cluster) -> None:
    cluster.step()
    cluster.report(JobState.RUNNING)
    cluster.step(1)
    cluster.ended.add("launch-1")
    cluster.step()
    assert cluster.until_start(10) == 1


def test_a_restarted_launcher_adopts_a_driver_that_lives(cluster: Cluster) -> None:
    cluster.step()
    cluster.report(JobState.RUNNING)
    cluster.planner = cluster.new_planner()
    assert cluster.step(1) == []
    cluster.report(JobState.RUNNING)
    assert cluster.step(5) == [Adopt(job="j", run="r1")]
    cluster.run_healthily(600)
    assert cluster.starts == 1


def test_a_restarted_launcher_waits_for_a_driver_that_starts(cluster: Cluster) -> None:
    cluster.step()
    cluster.planner = cluster.new_planner()
    assert cluster.step(100) == []
    assert 119 < cluster.until_start(200) <= 122


def test_a_restarted_launcher_goes_on_with_the_delays(cluster: Cluster) -> None:
    cluster.launched(attempt=4)
    cluster.report(JobState.FAILED, "JobFailed")
    cluster.step()
    assert cluster.until_start(20) == 8


def test_a_driver_that_another_client_started_is_adopted(cluster: Cluster) -> None:
    cluster.report(JobState.RUNNING)
    assert cluster.step(1) == []
    cluster.report(JobState.RUNNING)
    assert cluster.step(5) == [Adopt(job="j", run="r1")]
    assert cluster.starts == 0


def test_a_newer_run_is_launched_and_the_one_before_is_forgotten(cluster: Cluster) -> None:
    cluster.step()
    cluster.report(JobState.FAILED, "JobFailed")
    cluster.step()
    cluster.want("running", run="r2")
    cluster.records = replace(cluster.records, report=None)
    assert cluster.step() == [Start(job="j", run="r2", attempt=1, reason="ordered")]


def test_a_stop_before_the_launch_ends_the_run(cluster: Cluster) -> None:
    cluster.report(JobState.STARTING)
    cluster.want("stopped")
    assert [type(each) for each in cluster.step()] == [WriteFinalReport]
    assert cluster.records.report is not None
    assert cluster.records.report.state is JobState.STOPPED
    assert cluster.step(1_000) == []


def test_nothing_is_started_for_a_run_that_is_to_stop(cluster: Cluster) -> None:
    cluster.step()
    cluster.report(JobState.FAILED, "JobFailed")
    cluster.step()
    cluster.want("stopped")
    assert cluster.step(1_000) == []
    cluster.want("running")
    cluster.step()
    assert cluster.until_start(10) == 1


def test_a_bounded_run_is_started_once_and_its_loss_is_reported() -> None:
    cluster = Cluster(BOUNDED)
    cluster.step()
    cluster.ended.add("launch-1")
    assert [type(each) for each in cluster.step(1)] == [WriteFinalReport]
    assert cluster.records.report is not None
    assert cluster.records.report.state is JobState.FAILED
    assert cluster.step(1_000) == []
    assert cluster.starts == 1


EVENTS = st.lists(
    st.one_of(
        st.sampled_from(["heartbeat", "restart", "stop", "resume", "new run", "supervisor"]),
        st.sampled_from(["JobFailed", "BrokerUnavailable", "ProgressLost"]),
        st.integers(min_value=1, max_value=15),
        st.integers(min_value=1, max_value=200),
    ),
    max_size=40,
)


class History(Cluster):
    """A cluster to which anything may happen; ``alive`` is whether the driver lives."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 1
        self.alive = False
        self.died = self.heard = self.now

    @property
    def run(self) -> str:
        return f"r{self.runs}"

    def happen(self, event: str | int) -> float:
        """Let an event happen; return the seconds that it takes."""
        match event:
            case "restart":
                self.planner = self.new_planner()
            case "stop":
                self.want("stopped", self.run)
            case "resume":
                self.want("running", self.run)
            case "new run":
                self.runs += 1
                self.want("running", self.run)
                self.records = replace(self.records, report=None)
                self.alive = False
            case int():
                return float(event)
            case _ if self.alive:
                self.happen_to_driver(event)
        return 0.0

    def happen_to_driver(self, event: str) -> None:
        if event == "heartbeat":
            self.report(JobState.RUNNING)
            self.heard = self.now
            return
        self.alive, self.died = False, self.now
        if event != "supervisor":
            self.report(JobState.FAILED, event)
        elif self.records.launch is not None:
            self.ended = {self.records.launch.launch}

    def check(self, start: Start, wanted: str) -> None:
        """Check that a start is due."""
        silent = self.now - self.heard > TIMINGS.heartbeat_timeout_s
        assert wanted == "running"
        assert start.run == self.run
        assert not self.alive or silent
        assert start.reason == "ordered" or self.now - self.died >= POLICY.first_delay_s or silent
        self.alive, self.heard, self.ended = True, self.now, set()

    @property
    def may_go_on(self) -> bool:
        report = self.records.report
        if self.records.order.wanted != "running" or self.alive or report is None:
            return False
        return not report.state.final or report.error in ("JobFailed", "BrokerUnavailable")


@given(EVENTS)
def test_no_driver_is_started_beside_one_that_lives_or_for_a_run_that_is_to_stop(events: list[str | int]) -> None:
    """Any history: between two starts of a run are a death, or silence, and a pause; and a dead one is started."""
    history = History()
    for event in events:
        seconds = history.happen(event)
        wanted = history.records.order.wanted
        for action in history.step(seconds):
            if isinstance(action, Start):
                history.check(action, wanted)
    if history.may_go_on:
        history.until_start(200)

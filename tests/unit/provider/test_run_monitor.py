"""A run's progress and end, from snapshots, with a clock of the test's."""

from dataclasses import replace
from pathlib import Path

import pytest

from wasmline.control import JobOrder, RunSnapshot
from wasmline.errors import Fenced, JobFailed
from wasmline.job_specs import JobReport, JobSpec, JobState
from wasmline_provider.job_client import JobRun
from wasmline_provider.run_monitor import RunMonitor

ORDER = JobOrder(spec=JobSpec(job="j", run="run-1", storage="s"), wanted="running")


class Scene:
    """A monitor of one run, its lines, and what is read of the run."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.run = JobRun(job="j", run="run-1", log=str(folder / "driver.log"))
        self.monitor = RunMonitor(self.run, self.lines.append, heartbeat=120, clock=lambda: self.now)
        self.read = RunSnapshot(order=ORDER, reads=0)

    def look(self, after: float = 0.0, **changes: object) -> JobReport | None:
        self.now += after
        self.read = replace(self.read, reads=self.read.reads + 1, **changes)  # type: ignore[arg-type]
        return self.monitor.end(self.read)

    def report(self, state: JobState, updated_ms: int = 1) -> JobReport:
        return JobReport(job="j", run="run-1", state=state, updated_ms=updated_ms)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_run_without_heartbeats_is_lost_with_the_end_of_its_log(scene: Scene) -> None:
    Path(scene.run.log).write_text("starting\njava.lang.OutOfMemoryError\n")
    assert scene.look(119, report=scene.report(JobState.RUNNING)) is None
    assert scene.look(119) is None, "the first look saw a heartbeat"
    with pytest.raises(JobFailed, match="no heartbeat for 120 s") as lost:
        scene.look(2)
    assert str(lost.value).endswith(f"is in {scene.run.log}, and ends with:\nstarting\njava.lang.OutOfMemoryError")


def test_a_heartbeat_is_a_report_that_changes_whatever_its_time(scene: Scene) -> None:
    for updated_ms in (9, 8, 7):
        assert scene.look(119, report=scene.report(JobState.RUNNING, updated_ms)) is None


def test_a_cluster_that_is_away_is_told_once_and_no_missing_heartbeat(scene: Scene) -> None:
    scene.look(report=scene.report(JobState.RUNNING))
    for _ in range(20):
        assert scene.look(100, unreadable="BrokerUnavailable: away") is None
    assert scene.lines[1:] == ["cannot read the report of job j: BrokerUnavailable: away"]
    assert scene.look(119, unreadable="") is None
    with pytest.raises(JobFailed):
        scene.look(2)


def test_a_snapshot_that_is_not_new_says_nothing_of_heartbeats(scene: Scene) -> None:
    scene.look(report=scene.report(JobState.RUNNING))
    scene.now += 1_000
    assert scene.monitor.end(scene.read) is None


@pytest.mark.parametrize("order", [None, replace(ORDER, spec=replace(ORDER.spec, run="run-2"))])
def test_a_run_that_is_replaced_or_deleted_is_fenced(scene: Scene, order: JobOrder | None) -> None:
    with pytest.raises(Fenced, match="run run-1 ends without a result"):
        scene.look(order=order)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.STOPPED, JobState.FAILED])
def test_a_final_report_is_the_end_even_if_a_newer_run_is_ordered(scene: Scene, state: JobState) -> None:
    assert scene.look(order=None, report=scene.report(state)) == scene.report(state)

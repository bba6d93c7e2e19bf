"""Launchers on a real broker, with drivers that are ordinary processes: the name, the orders, and the failures."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wasmline.control import (
    ClaimWriter,
    DriverClaim,
    JobTopic,
    Launch,
    LaunchRequest,
    control_topics,
    require_launcher,
)
from wasmline.control.job_keys import launch_key, report_key
from wasmline.control.launcher_topic import LauncherClaim, launcher_status_key
from wasmline.documents import encode, plain
from wasmline.errors import (
    BrokerUnavailable,
    Fenced,
    InvalidJob,
    JobNotFound,
    LauncherUnavailable,
    UnsupportedSpecVersion,
)
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig, RecordWriter, produce_all
from wasmline.local.process import wait_until
from wasmline.restart_policy import is_restartable
from wasmline.spark import launcher as launcher_module
from wasmline.spark import main, stream_job
from wasmline.spark.driver_context import NewDriver
from wasmline.spark.driver_process import FENCED_STATUS
from wasmline.spark.launch_planner import LaunchTimings
from wasmline.spark.launcher import DriverStarter, Launcher
from wasmline.spark.microbatch.job import MicrobatchJob
from wasmline.spark.spark_submit_supervisor import supervise
from wasmline.testing.kafka import RunningKafka

SOON = LaunchTimings(claim_timeout_s=0.5)


class Machine:
    """Launchers of one name, whose drivers are short processes."""

    def __init__(self, config: KafkaConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.name = f"l-{uuid.uuid4().hex[:8]}"
        self.jobs = JobTopic(config)
        self.started: list[tuple[str, Launch, LaunchRequest]] = []
        self.status = 0
        """The exit status of the processes."""
        self.launchers: list[Launcher] = []

    def launcher(self, timings: LaunchTimings = SOON) -> Launcher:
        made = Launcher(self.config, self.name, self.folder, self.start, timings=timings)
        self.launchers.append(made)
        return made

    def start(self, request: LaunchRequest, launch: Launch, job: str) -> subprocess.Popen[bytes]:
        self.started.append((job, launch, request))
        process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({self.status})"])
        process.wait()
        return process

    def order(self, run: str = "run-1", *, launcher: str | None = None, arguments: tuple[str, ...] = ()) -> JobSpec:
        spec = JobSpec(
            job=f"job-{uuid.uuid4().hex[:8]}",
            run=run,
            storage=str(self.folder),
            stream=StreamSpec(transform=f"t-{uuid.uuid4()}", trigger_interval="1 second"),
        )
        self.jobs.submit(spec, launch=LaunchRequest(launcher=launcher or self.name, arguments=arguments))
        return spec

    def report(self, spec: JobSpec) -> JobReport:
        report = self.jobs.report(spec.job, spec.run)
        assert report is not None
        return report

    def close(self) -> None:
        for each in self.launchers:
            each.close()
        self.jobs.close()


@pytest.fixture
def machine(kafka: RunningKafka, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(kafka.config, tmp_path)
    yield made
    made.close()


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [each for each in caplog.messages if text in each]


def test_an_order_is_launched_once_with_its_options_and_recorded_before(machine: Machine) -> None:
    launcher, spec = machine.launcher(), machine.order(arguments=("--driver-memory", "1g"))
    launcher.step()
    launcher.step()
    [(job, launch, request)] = machine.started
    assert (job, launch.run, launch.attempt) == (spec.job, "run-1", 1)
    assert launch.log == str(machine.folder / spec.job / "run-1.log")
    assert request.arguments == ("--driver-memory", "1g")
    assert machine.jobs.last_launch(spec.job) == launch
    assert machine.report(spec).state is JobState.STARTING
    assert f"launcher {machine.name} starts a driver" in machine.report(spec).message


def test_orders_of_other_launchers_are_left_alone(machine: Machine) -> None:
    machine.order(launcher="another")
    machine.launcher().step()
    assert machine.started == []


def test_of_two_processes_of_a_name_one_is_idle_until_the_other_ends(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = machine.launcher(LaunchTimings()), machine.launcher(LaunchTimings())
    first.step()
    machine.order()
    second.step()
    second.step()
    assert (first.active, second.active) == (True, False)
    assert machine.started == []
    assert len(lines(caplog, "has the name; this process waits")) == 1
    first.close()
    second.step()
    assert second.active
    assert len(machine.started) == 1


def test_a_process_that_was_killed_is_replaced_and_if_it_was_not_it_starts_nothing_more(machine: Machine) -> None:
    first, second = machine.launcher(), machine.launcher()
    first.step()
    second.step()
    assert not second.active
    wait_until(lambda: second.step() or second.active, 20)  # type: ignore[func-returns-value]
    assert second.active
    # The first process was frozen, say. It reads an order before it notices.
    spec = machine.order()
    first.step()
    assert not first.active
    assert machine.started == []
    second.step()
    assert [job for job, _, _ in machine.started] == [spec.job]


def test_a_restarted_launcher_starts_nothing_for_a_driver_that_sends_heartbeats(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, spec = machine.launcher(), machine.order()
    first.step()
    first.close()
    machine.folder = machine.folder / "elsewhere"
    second = machine.launcher()
    for _ in range(3):
        machine.jobs.write_report(JobReport.now(spec.job, spec.run, JobState.RUNNING))
        second.step()
    assert len(machine.started) == 1
    assert len(lines(caplog, f"job {spec.job}, run run-1: adopted")) == 1


def test_a_driver_that_failed_is_started_again_under_the_same_run(machine: Machine) -> None:
    launcher, spec = machine.launcher(), machine.order()
    launcher.step()
    machine.jobs.write_report(JobReport.now(spec.job, spec.run, JobState.FAILED, "killed", error="JobFailed"))
    assert wait_until(lambda: bool(launcher.step() or len(machine.started) > 1), 20)  # type: ignore[func-returns-value]
    assert [(launch.run, launch.attempt) for _, launch, _ in machine.started] == [("run-1", 1), ("run-1", 2)]
    assert machine.report(spec).state is JobState.STARTING
    assert "attempt 2: failed: JobFailed" in machine.report(spec).message


class Lateness:
    """Seconds by which the launchers' clock is ahead: what a reading took that was held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + self.seconds)
        monkeypatch.setattr(launcher_module, "time", clock)

    def steps(self, launcher: Launcher, *, seconds: float) -> None:
        """Let time pass, with a reading every ten seconds at most."""
        while seconds > 0:
            passed = min(10.0, seconds)
            self.seconds, seconds = self.seconds + passed, seconds - passed
            launcher.step()


def test_no_driver_is_started_beside_one_whose_heartbeats_a_late_reading_missed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Lateness(monkeypatch)
    first, spec = machine.launcher(), machine.order()
    first.step()
    first.close()
    machine.jobs.write_report(JobReport.now(spec.job, spec.run, JobState.RUNNING))
    launcher = machine.launcher()
    launcher.step()
    late.seconds = 60
    launcher.step()
    late.steps(launcher, seconds=28)
    assert len(machine.started) == 1
    late.steps(launcher, seconds=30)
    assert len(machine.started) == 2


def test_a_driver_that_ended_because_another_one_has_its_run_is_replaced_only_if_that_falls_silent(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Lateness(monkeypatch)
    machine.status = FENCED_STATUS
    launcher, spec = machine.launcher(), machine.order()
    launcher.step()
    machine.jobs.write_report(JobReport.now(spec.job, spec.run, JobState.RUNNING))
    late.steps(launcher, seconds=28)
    assert len(machine.started) == 1
    late.steps(launcher, seconds=40)
    assert len(machine.started) == 2


def test_a_process_takes_no_name_of_one_whose_heartbeats_a_late_reading_missed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Lateness(monkeypatch)
    first, second = machine.launcher(LaunchTimings()), machine.launcher(LaunchTimings())
    first.step()
    second.step()
    late.seconds = 60
    second.step()
    late.steps(second, seconds=18)
    assert not second.active
    late.steps(second, seconds=10)
    assert second.active


def test_an_order_that_cannot_be_read_is_reported_once_and_the_others_are_served(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = f"job-{uuid.uuid4().hex[:8]}"
    produce_all(machine.config, control_topics.JOBS, [(unreadable.encode(), b'{"wanted": 7}', None, None)])
    try:
        launcher, spec = machine.launcher(), machine.order()
        launcher.step()
        launcher.step()
        assert [job for job, _, _ in machine.started] == [spec.job]
        assert len(lines(caplog, f"skips the order of job {unreadable}")) == 1
    finally:
        produce_all(machine.config, control_topics.JOBS, [(unreadable.encode(), None, None, None)])


@pytest.mark.parametrize("change", [{"run": "../../elsewhere"}, {"run": "x" * 600_000}, {"job": "another"}])
def test_an_order_whose_names_are_no_names_is_skipped_and_the_others_are_served(
    machine: Machine, change: dict[str, str]
) -> None:
    poisoned = machine.order()
    key, order = poisoned.job.encode(), plain(machine.jobs.order(poisoned.job))
    order["spec"] |= change
    produce_all(machine.config, control_topics.JOBS, [(key, json.dumps(order).encode(), None, None)])
    try:
        launcher, spec = machine.launcher(), machine.order()
        for _ in range(3):
            launcher.step()
        assert [job for job, _, _ in machine.started] == [spec.job]
    finally:
        produce_all(machine.config, control_topics.JOBS, [(key, None, None, None)])


def test_an_order_with_arguments_that_are_not_for_spark_submit_fails(machine: Machine) -> None:
    spec = machine.order(arguments=("/tmp/evil.py",))
    launcher = Launcher(machine.config, machine.name, machine.folder, DriverStarter(machine.config, "/k.jar"))
    machine.launchers.append(launcher)
    launcher.step()
    launcher.step()
    assert (machine.report(spec).state, machine.report(spec).error) == (JobState.FAILED, "InvalidJob")
    assert not list(machine.folder.iterdir())


def test_an_argument_that_no_process_can_have_fails_the_run_and_not_the_launcher(machine: Machine) -> None:
    spec = machine.order(arguments=("--name", "a\0b"))
    launcher = Launcher(machine.config, machine.name, machine.folder, DriverStarter(machine.config, "/k.jar"))
    machine.launchers.append(launcher)
    launcher.step()
    assert (machine.report(spec).state, machine.report(spec).error) == (JobState.FAILED, "ValueError")
    assert launcher.active


def test_a_status_of_another_release_is_replaced(machine: Machine) -> None:
    with RecordWriter(machine.config) as writer:
        writer.write(control_topics.JOBS, [(launcher_status_key(machine.name), b'{"spec_version": 2}', None, None)])
    with pytest.raises(LauncherUnavailable):
        require_launcher(machine.config, machine.name, timeout=0.1)
    launcher = machine.launcher()
    launcher.step()
    assert launcher.active
    assert require_launcher(machine.config, machine.name).launcher == machine.name


@pytest.mark.parametrize(
    ("fenced_by", "error", "is_written"),
    [
        ("a driver of its run", "Fenced", False),
        ("another run", "Fenced", True),
        ("none that goes on", "Conflict", True),
    ],
)
def test_a_fenced_driver_reports_its_end_unless_its_run_goes_on_with_another_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, fenced_by: str, error: str, is_written: bool
) -> None:
    spec = machine.order()

    def fenced(config: KafkaConfig, job: JobSpec, driver: NewDriver) -> JobReport:
        machine.jobs.write_report(JobReport.now(job.job, job.run, JobState.RUNNING))  # the newer driver's
        if fenced_by == "a driver of its run":
            claim(machine, job.job, job.run, "newer", 1)
        elif fenced_by == "another run":
            machine.jobs.submit(replace(job, run="run-2"))
        raise Fenced("a newer driver claimed the job", job=job.job)

    claim(machine, spec.job, "run-0", "older", 0)
    monkeypatch.setattr(main, "run", fenced)
    report, written = main._reported(machine.jobs, machine.config, spec)
    assert (report.error, written) == (error, is_written)
    assert machine.report(spec).state is (JobState.FAILED if is_written else JobState.RUNNING)
    assert is_restartable(report) == (fenced_by == "none that goes on")


def claim(machine: Machine, job: str, run: str, driver: str, batch: int, driver_run: str = "") -> None:
    claimed = DriverClaim(run=run, driver=driver, driver_run=driver_run, checkpoint="", batch_id=batch, deployment=None)
    writer = ClaimWriter(machine.config, job, driver)
    writer.take_over(lambda _: claimed)
    writer.close()


@pytest.mark.parametrize(
    ("before", "meanwhile", "is_reported"),
    [
        (("run", "first"), ("run", "second"), False),
        (("run", "first"), ("run", "first"), False),
        (("earlier", "first"), ("takeover", "second"), False),  # it has taken over, and not begun a batch
        (("earlier", "first"), ("earlier", "second"), True),
        (("earlier", "first"), ("earlier", "first"), True),
        (("run", "first"), None, True),
        (None, ("run", "first"), False),
    ],
)
def test_a_driver_that_fails_reports_it_unless_another_one_of_its_run_has_claimed_the_job_meanwhile(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[str, str] | None,
    meanwhile: tuple[str, str] | None,
    is_reported: bool,
) -> None:
    spec = machine.order()

    def claims(of: tuple[str, str] | None, batch: int) -> None:
        if of is not None:
            run = spec.run if of[0] == "run" else "earlier"
            claim(machine, spec.job, run, of[1], batch, spec.run if of[0] == "takeover" else "")

    def failing(config: KafkaConfig, job: JobSpec, driver: NewDriver) -> JobReport:
        claims(meanwhile, 1)
        machine.jobs.write_report(JobReport.now(job.job, job.run, JobState.RUNNING))
        raise OSError("no Spark")

    claims(before, 0)
    monkeypatch.setattr(main, "run", failing)
    report, is_written = main._reported(machine.jobs, machine.config, spec)
    assert (report.error, is_written) == ("OSError", is_reported)
    assert machine.report(spec).state is (JobState.FAILED if is_reported else JobState.RUNNING)


def test_a_claim_of_another_release_is_the_runs_to_report(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = machine.order()
    with RecordWriter(machine.config) as writer:
        writer.write(control_topics.JOBS, [(f"{spec.job}/batch".encode(), b'{"spec_version": 99}', None, None)])

    def failing(config: KafkaConfig, job: JobSpec, driver: NewDriver) -> JobReport:
        raise UnsupportedSpecVersion("of another release")

    monkeypatch.setattr(main, "run", failing)
    assert main._reported(machine.jobs, machine.config, spec)[1]
    assert machine.report(spec).error == "UnsupportedSpecVersion"


@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_driver_that_was_frozen_before_its_claim_reports_nothing_over_a_newer_driver_of_its_run(
    machine: Machine, is_claimed: bool
) -> None:
    spec = machine.order()
    assert spec.stream is not None
    claim(machine, spec.job, spec.run, "dead", 0)
    driver = NewDriver.of(machine.jobs, spec.job)
    machine.jobs.write_report(JobReport.now(spec.job, spec.run, JobState.RUNNING))
    if is_claimed:
        claim(machine, spec.job, spec.run, "newer", 1)
    frozen = MicrobatchJob(cast(Any, None), machine.config, spec, spec.stream, driver=driver)  # Spark took long
    if is_claimed:
        with pytest.raises(Fenced):
            frozen._stopped_early()
    else:
        frozen._stopped_early()
    frozen._context.close()
    assert machine.report(spec).state is (JobState.RUNNING if is_claimed else JobState.STOPPED)


@pytest.mark.parametrize(
    ("before", "newest", "is_superseded"),
    [
        (("run-1", "dead", ""), ("run-1", "newer", ""), True),
        (("run-0", "dead", ""), ("run-0", "newer", "run-1"), True),  # it has taken over, and begun nothing
        (("run-1", "dead", ""), ("run-1", "dead", ""), False),  # which this one was started to replace
        (("run-0", "dead", ""), ("run-0", "other", ""), False),
    ],
)
def test_a_driver_that_was_frozen_takes_the_job_from_no_driver_that_was_started_to_replace_it(
    machine: Machine, before: tuple[str, str, str], newest: tuple[str, str, str], is_superseded: bool
) -> None:
    spec = machine.order()
    assert spec.stream is not None
    claim(machine, spec.job, *before[:2], 0, before[2])
    driver = NewDriver.of(machine.jobs, spec.job)
    frozen = MicrobatchJob(cast(Any, None), machine.config, spec, spec.stream, driver=driver)
    claim(machine, spec.job, *newest[:2], 1, newest[2])
    if is_superseded:
        with pytest.raises(stream_job._Superseded):
            frozen._context.claims.take_over(frozen._build_takeover_claim)
    else:
        frozen._context.claims.take_over(frozen._build_takeover_claim)
    frozen._context.close()
    last = machine.jobs.last_claim(spec.job)
    assert last is not None
    assert (last.driver, last.driver_run) == (newest[1:] if is_superseded else (driver.name, "run-1"))


def test_a_driver_whose_reports_are_of_a_newer_release_is_left_alone(machine: Machine) -> None:
    silent = LaunchTimings(start_timeout_s=0, heartbeat_timeout_s=0)
    launcher, spec = machine.launcher(silent), machine.order()
    launcher.step()
    key = report_key(spec.job, spec.run)
    produce_all(machine.config, control_topics.JOBS, [(key, b'{"spec_version": 2}', None, None)])
    try:
        for _ in range(3):
            launcher.step()
        assert len(machine.started) == 1
    finally:
        produce_all(machine.config, control_topics.JOBS, [(key, None, None, None)])


def test_a_launch_whose_record_got_no_answer_is_made_again_and_not_awaited_as_a_driver(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, spec = machine.launcher(), machine.order()
    write = LauncherClaim.write

    def without_an_answer(claim: LauncherClaim, *written: Any) -> None:
        write(claim, *written)
        if len(written) > 1 and written[1]:
            monkeypatch.undo()
            raise BrokerUnavailable("no answer", bootstrap_servers="b:1")

    monkeypatch.setattr(LauncherClaim, "write", without_an_answer)
    launcher.step()
    assert machine.started == []
    assert machine.jobs.last_launch(spec.job) is not None

    def has_started() -> bool:
        launcher.step()
        return len(machine.started) == 1

    assert wait_until(has_started, 20.0)


@pytest.mark.parametrize("status", [FENCED_STATUS, 1])
def test_a_supervisor_reports_no_driver_whose_run_goes_on_with_another_one(machine: Machine, status: int) -> None:
    spec = machine.order()
    ends = [sys.executable, "-c", f"raise SystemExit({status})"]
    assert supervise(machine.config, spec.job, spec.run, ends, machine.folder / "driver.log") == status
    assert machine.report(spec).state is (JobState.STARTING if status == FENCED_STATUS else JobState.FAILED)


def test_a_folder_that_cannot_be_written_fails_the_start_and_not_the_launcher(machine: Machine) -> None:
    (machine.folder / "file").touch()
    spec = machine.order()
    starter = DriverStarter(machine.config, "/k.jar")
    launcher = Launcher(machine.config, machine.name, machine.folder / "file", starter)
    machine.launchers.append(launcher)
    launcher.step()
    assert (machine.report(spec).state, machine.report(spec).error) == (JobState.FAILED, "NotADirectoryError")
    assert launcher.active


def test_the_launchers_that_send_heartbeats_are_named_where_one_is_missing(machine: Machine) -> None:
    launcher = machine.launcher()
    launcher.step()
    assert require_launcher(machine.config, machine.name).log_folder == str(machine.folder)
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    with pytest.raises(LauncherUnavailable, match=f"no launcher {missing} sends heartbeats.*Nothing was ordered") as no:
        require_launcher(machine.config, missing, timeout=0.1)
    assert no.value.retryable
    assert machine.name in no.value.alive
    launcher.close()
    with pytest.raises(LauncherUnavailable):
        require_launcher(machine.config, machine.name, timeout=0.1)
    with pytest.raises(InvalidJob):
        require_launcher(machine.config, "a/b", timeout=0.1)


def test_the_records_of_launchers_are_no_orders(machine: Machine) -> None:
    launcher, spec = machine.launcher(), machine.order()
    launcher.step()
    assert spec.job in [order.spec.job for order in machine.jobs.orders()]
    with pytest.raises(JobNotFound):
        machine.jobs.order(machine.name)


def test_a_supervisor_says_nothing_of_a_run_whose_driver_was_started_again(machine: Machine, tmp_path: Path) -> None:
    spec = machine.order()
    launcher = machine.launcher()
    launcher.step()
    [(_, newest, _)] = machine.started
    command, log = [sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "driver.log"
    assert supervise(machine.config, spec.job, spec.run, command, log, launch="an earlier one") == 3
    assert machine.report(spec).state is JobState.STARTING
    assert supervise(machine.config, spec.job, spec.run, command, log, launch=newest.launch) == 3
    assert machine.report(spec).state is JobState.FAILED


@pytest.mark.parametrize("status", [0, 3])
def test_a_supervisor_of_a_submission_reports_only_its_failure(machine: Machine, tmp_path: Path, status: int) -> None:
    spec = machine.order()
    command = [sys.executable, "-c", f"raise SystemExit({status})"]
    assert supervise(machine.config, spec.job, spec.run, command, tmp_path / "log", submits=True) == status
    assert machine.report(spec).state is (JobState.FAILED if status else JobState.STARTING)


@pytest.mark.long
def test_a_launcher_waits_for_a_broker_that_is_away(
    stoppable_kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wasmline.kafka.compacted_topic.REQUEST_TIMEOUT_S", 2.0)
    machine = Machine(stoppable_kafka.config, tmp_path)
    launcher = machine.launcher()
    launcher.step()
    assert launcher.active
    stoppable_kafka.local.stop()
    launcher.step()
    launcher.step()
    assert not launcher.active
    assert len(lines(caplog, "waits for the cluster")) == 1
    stoppable_kafka.local.start()
    assert wait_until(lambda: launcher.step() or launcher.active, 60)
    spec = machine.order()
    launcher.step()
    assert [job for job, _, _ in machine.started] == [spec.job]
    machine.close()


def test_a_record_of_a_launch_that_cannot_be_read_is_skipped(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    spec = machine.order()
    with RecordWriter(machine.config) as writer:
        writer.write(control_topics.JOBS, [(launch_key(spec.job), b"\xff", None, None)])
    launcher = machine.launcher()
    launcher.step()
    assert [job for job, _, _ in machine.started] == [spec.job]
    assert lines(caplog, f"skips the launch of job {spec.job}")
    assert encode(machine.started[0][1]) != b"\xff"

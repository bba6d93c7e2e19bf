"""``wasmline stop`` and ``wasmline delete`` on a real broker."""

import json
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from wasmline.cli import main
from wasmline.cli.confirmation import user_name
from wasmline.control import ClaimWriter, DriverClaim, JobTopic, control_topics, read_job_events
from wasmline.control.job_keys import report_key
from wasmline.errors import JobNotFound
from wasmline.job_specs import FunctionSpec, JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import produce_all
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka


class Job:
    """A job whose driver is this test."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.kafka = kafka
        stream = StreamSpec(transform=f"t-{uuid.uuid4()}", trigger_interval="1 second")
        self.spec = JobSpec(job=f"job-{uuid.uuid4()}", run="run-1", storage="s", stream=stream)
        self.jobs = JobTopic(kafka.config)
        self.jobs.submit(self.spec)

    def report(self, state: JobState) -> None:
        self.jobs.write_report(JobReport.now(self.spec.job, self.spec.run, state))

    def run(self, command: str, *options: str) -> Result:
        arguments = [command, self.spec.job, "-X", f"bootstrap.servers={self.kafka.bootstrap_servers}", *options]
        return CliRunner().invoke(main, arguments)


@pytest.fixture
def job(kafka: RunningKafka) -> Iterator[Job]:
    made = Job(kafka)
    with closing(made.jobs):
        yield made


def test_a_stop_is_a_users_and_waits_for_the_end(job: Job) -> None:
    job.report(JobState.RUNNING)
    with ThreadPoolExecutor(1) as thread:
        stopped = thread.submit(job.run, "stop")
        assert wait_until(lambda: job.jobs.order(job.spec.job).wanted == "stopped", 30)
        job.report(JobState.STOPPED)
        result = stopped.result(60)
    assert (result.exit_code, result.output) == (0, f"job {job.spec.job}, run run-1: stopped\n")
    assert job.jobs.order(job.spec.job).is_stopped_by_user


def test_a_run_that_goes_on_is_an_error_and_its_stop_stays_wanted(job: Job) -> None:
    job.report(JobState.RUNNING)
    result = job.run("stop", "--wait", "0.5")
    assert result.exit_code == 1
    assert "has not ended in 0.5 s" in result.output
    assert job.jobs.order(job.spec.job).wanted == "stopped"


def test_a_live_job_is_not_deleted_and_an_ended_one_is(job: Job) -> None:
    job.report(JobState.RUNNING)
    refused = job.run("delete", "--yes")
    assert refused.exit_code == 1
    assert f"is live: wasmline stop {job.spec.job}" in refused.output
    job.report(JobState.FAILED)
    assert job.run("delete", "--yes").output == f"job {job.spec.job} deleted\n"
    with pytest.raises(JobNotFound):
        job.jobs.order(job.spec.job)


def test_a_deletion_is_asked_for(job: Job) -> None:
    job.report(JobState.STOPPED)
    assert job.run("delete").exit_code == 2
    assert job.jobs.order(job.spec.job).spec.run == "run-1"


@pytest.mark.parametrize("command", ["stop", "delete"])
def test_an_unknown_job_is_named(kafka: RunningKafka, command: str) -> None:
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"
    result = CliRunner().invoke(main, [command, "nobody-ordered-it", "--yes", "-X", servers])
    assert result.exit_code == 1
    assert "nobody-ordered-it" in result.output


def test_jobs_are_listed_with_the_state_of_their_runs(job: Job) -> None:
    job.report(JobState.RUNNING)
    report = JobReport.now(job.spec.job, job.spec.run, JobState.RUNNING)
    silent = Job(job.kafka)
    with closing(silent.jobs):
        silent.jobs.write_report(replace(report, job=silent.spec.job, updated_ms=report.updated_ms - 3_600_000))
        produce_all(job.kafka.config, control_topics.JOBS, [(report_key(silent.spec.job, "other"), b"{}", [], None)])
        arguments = ["jobs", "-X", f"bootstrap.servers={job.kafka.bootstrap_servers}"]
        listed = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
        conditions = {each["order"]["spec"]["job"]: each["condition"] for each in listed}
        assert (conditions[job.spec.job], conditions[silent.spec.job]) == ("running", "silent")
        lines = [line for line in CliRunner().invoke(main, arguments).stdout.splitlines() if job.spec.job in line]
        assert re.search(r"running +running +microbatch +at_least_once +transform t-", lines[0])
        job.report(JobState.STOPPED)
        produce_all(job.kafka.config, control_topics.JOBS, [(report_key(silent.spec.job, "run-1"), b"{}", [], None)])
        result = CliRunner().invoke(main, [*arguments, "--json"])
        assert f"the report of job {silent.spec.job} cannot be read" in result.stderr
        conditions = {each["order"]["spec"]["job"]: each["condition"] for each in json.loads(result.stdout)}
        assert (conditions[job.spec.job], conditions[silent.spec.job]) == ("stopped", "unknown")


def test_who_stops_and_deletes_a_job_is_kept_with_the_reason(job: Job) -> None:
    job.report(JobState.STOPPED)
    stopped = job.run("stop", "--reason", "too slow", "--json")
    assert json.loads(stopped.stdout) == {"job": job.spec.job, "run": "run-1", "state": "stopped"}
    assert job.run("stop").exit_code == 0  # it is stopped already: no event
    assert job.run("delete", "--yes", "--reason", "not needed").exit_code == 0
    events = read_job_events(job.kafka.config, job.spec.job)
    found = [(each.action, each.run, each.cause.reason, each.cause.by) for each in events]
    assert found == [("stop", "run-1", "too slow", user_name()), ("delete", "run-1", "not needed", user_name())]
    shown = job.run("history", "--job").stdout
    assert re.search(rf"stop +run-1 +{user_name()} +- +too slow\n.*delete +run-1", shown)


def test_a_function_is_paused_by_its_job_for_its_next_runs_too(job: Job) -> None:
    assert "runs a transform: wasmline pause t-" in job.run("pause", "--job").output
    stream = StreamSpec(function=FunctionSpec(function="m:f", topic=f"in-{uuid.uuid4()}"), mode="parallel")
    job.jobs.submit(replace(job.spec, run="run-2", stream=stream))
    assert job.run("pause", "--job", "--reason", "lunch").output == "Function paused!\n"
    assert job.run("pause", "--job", "--reason", "lunch").exit_code == 0  # it is paused already: no event
    following = job.jobs.submit(replace(job.spec, run="run-3", stream=stream))
    assert (following.paused, following.pause_reason) == (True, "lunch")
    assert job.jobs.order(job.spec.job) == following
    listed = CliRunner().invoke(main, ["jobs", "-X", f"bootstrap.servers={job.kafka.bootstrap_servers}"]).stdout
    assert re.search(rf"{job.spec.job} +starting +paused", listed)
    resumed = job.run("resume", "--job", "--json").stdout
    assert json.loads(resumed) == {"job": job.spec.job, "state": "running"}
    assert not job.jobs.order(job.spec.job).paused
    events = read_job_events(job.kafka.config, job.spec.job)
    assert [(each.action, each.run) for each in events] == [("pause", "run-2"), ("resume", "run-3")]


def test_a_round_of_leases_is_withdrawn_with_its_author(job: Job) -> None:
    refused = job.run("withdraw", "--yes")
    assert "has no leases" in refused.output
    with closing(ClaimWriter(job.kafka.config, job.spec.job, "driver")) as claims:
        claims.take_over(lambda _: claim(-1))
        assert "has no leases" in job.run("withdraw", "--yes").output
        claims.claim(claim(3))
    done = json.loads(job.run("withdraw", "--yes", "--json", "--reason", "one task is stuck").stdout)
    assert done == {"job": job.spec.job, "driver": "driver", "epoch": 3}
    [event] = read_job_events(job.kafka.config, job.spec.job)
    assert (event.action, event.cause.reason) == ("withdraw", "one task is stuck")


def test_leases_of_a_run_without_a_driver_are_not_withdrawn(job: Job) -> None:
    with closing(ClaimWriter(job.kafka.config, job.spec.job, "driver")) as claims:
        claims.take_over(lambda _: claim(3))
    job.report(JobState.FAILED)
    assert "has no driver" in job.run("withdraw", "--yes").output


def claim(epoch: int) -> DriverClaim:
    return DriverClaim(run="run-1", mode="parallel", driver="driver", checkpoint="c", batch_id=epoch, deployment=None)

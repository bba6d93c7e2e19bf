"""``wasmline stop`` and ``wasmline delete`` on a real broker."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from click.testing import CliRunner, Result

from wasmline.cli import main
from wasmline.control import JobTopic
from wasmline.errors import JobNotFound
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
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
    assert job.run("delete").exit_code == 1
    assert job.jobs.order(job.spec.job).spec.run == "run-1"


@pytest.mark.parametrize("command", ["stop", "delete"])
def test_an_unknown_job_is_named(kafka: RunningKafka, command: str) -> None:
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"
    result = CliRunner().invoke(main, [command, "nobody-ordered-it", "-X", servers])
    assert result.exit_code == 1
    assert "nobody-ordered-it" in result.output

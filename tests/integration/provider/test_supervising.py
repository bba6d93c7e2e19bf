"""The supervising of streams on a real broker, with drivers whose reports the tests write."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from wasmline.clock import now_ms
from wasmline.control import DeploymentSpec, DeploymentTopic, JobTopic, StatusTopic, control_topics, run_liveness
from wasmline.errors import JobFailed
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import RecordWriter, produce_all
from wasmline.partition_status import PartitionStatus
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.operators.check_streams import CheckStreamsOperator
from wasmline_provider.triggers.dead_stream import DeadStreamTrigger

CONNECTION = "kafka_supervised"


class Streams:
    """Streams that are ordered, and whose drivers are the test."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.kafka = kafka
        self.topic = JobTopic(kafka.config)
        self._unreadable: list[JobSpec] = []

    def order(self) -> JobSpec:
        stream = StreamSpec(transform=f"t-{uuid.uuid4()}", trigger_interval="1 second")
        spec = JobSpec(job=f"job-{uuid.uuid4()}", run="run-1", storage="s", stream=stream)
        self.topic.submit(spec)
        return spec

    def report(self, spec: JobSpec, state: JobState, error: str | None = None) -> None:
        self.topic.write_report(JobReport.now(spec.job, spec.run, state, "why", error=error))

    def write_report_of_another_release(self, spec: JobSpec) -> None:
        self._write(f"{spec.job}/report/{spec.run}", b'{"spec_version": 99}')
        self._unreadable.append(spec)

    def close(self) -> None:
        for spec in self._unreadable:  # the broker is that of other tests, too
            self._write(f"{spec.job}/report/{spec.run}", None)
        self.topic.close()

    def _write(self, key: str, value: bytes | None) -> None:
        with closing(RecordWriter(self.kafka.config)) as writer:
            writer.write(control_topics.JOBS, [(key.encode(), value, [], None)])


@pytest.fixture
def streams(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    connection = json.dumps({"conn_type": "kafka", "extra": extra})
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", connection)
    with closing(Streams(kafka)) as made:
        yield made


def test_a_driver_that_dies_is_an_event_and_a_stopped_one_is_none(streams: Streams) -> None:
    unreadable, dead, stopped, final = (streams.order() for _ in range(4))
    jobs = [unreadable.job, dead.job, stopped.job, final.job, "nobody-ordered-it"]
    trigger = DeadStreamTrigger(jobs=jobs, kafka_conn_id=CONNECTION, poll_seconds=0.05)
    path, arguments = trigger.serialize()
    assert path == f"{DeadStreamTrigger.__module__}.{DeadStreamTrigger.__name__}"
    again = DeadStreamTrigger(**json.loads(json.dumps(arguments)))
    streams.topic.stop(stopped.job, "run-1")
    streams.report(stopped, JobState.STOPPED)
    streams.report(final, JobState.FAILED, "ProgressLost")
    streams.report(dead, JobState.FAILED, "JobFailed")
    streams.write_report_of_another_release(unreadable)
    event = asyncio.run(_first(again))
    report = streams.topic.report(dead.job, "run-1")
    assert report is not None
    assert event == {
        "jobs": [
            {
                "job": dead.job,
                "run": "run-1",
                "state": "failed",
                "error": "JobFailed",
                "message": "why",
                "updated_ms": report.updated_ms,
            }
        ]
    }


async def _first(trigger: DeadStreamTrigger) -> object:
    event = await anext(aiter(trigger.run()))
    return json.loads(json.dumps(event.payload))


def test_streams_that_run_are_checked_for_partitions_that_stand_still(streams: Streams) -> None:
    running, stopped, unreadable = (streams.order() for _ in range(3))
    streams.report(running, JobState.RUNNING)
    streams.topic.stop(stopped.job, "run-1")
    streams.write_report_of_another_release(unreadable)
    topic = streams.kafka.topic(partitions=1)
    produce_all(streams.kafka.config, topic, [(b"k", b"v", None, None)] * 10)
    with closing(StatusTopic(streams.kafka.config)) as statuses:
        statuses.write([_partition(running, topic)])
    assert running.stream is not None
    deployment = DeploymentSpec(
        name=running.stream.transform, version="1.0.0", digest="sha256:" + "0" * 64, input_topic=topic,
        output_topics=(topic + ".out",),
    )  # fmt: skip
    with closing(DeploymentTopic(streams.kafka.config)) as deployments:
        deployments.deploy(deployment)
        deployments.pause(deployment.name, "most records failed")
    check = CheckStreamsOperator(
        task_id="check",
        jobs=[running.job, stopped.job, unreadable.job],
        window_seconds=0.2,
        kafka_conn_id=CONNECTION,
    )
    found = check.execute({})
    assert (found["running"], found["stopped"], found["unreadable"]) == ([running.job], [stopped.job], [unreadable.job])
    (stall,) = found["stalled"]
    assert (stall["partition"], stall["offset"], stall["lag"]) == (0, 4, 6)
    assert stall["reason"] == f"deployment {deployment.name} is paused: most records failed"


def test_streams_without_a_driver_fail_the_check_with_their_last_words(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_liveness, "DRIVER_HEARTBEAT_TIMEOUT_S", 0.5)
    running, failed, *lost = (streams.order() for _ in range(4))
    streams.report(running, JobState.RUNNING)
    streams.report(failed, JobState.FAILED, "ProgressLost")
    for spec in lost:
        old = JobReport.now(spec.job, spec.run, JobState.RUNNING, "the last words")
        streams.topic.write_report(replace(old, updated_ms=old.updated_ms - 60_000))
    jobs = [running.job, failed.job, *(spec.job for spec in lost), "nobody-ordered-it"]
    check = CheckStreamsOperator(task_id="check", jobs=jobs, kafka_conn_id=CONNECTION)
    with pytest.raises(JobFailed) as found:
        check.execute({})
    assert found.value.report["jobs"] == jobs[1:]
    words = str(found.value).split("; ")
    assert words[0].startswith(f"stream {failed.job} should run and has no driver (run run-1, ")
    assert words[0].endswith("last report: failed: ProgressLost: why)")
    assert all("last report: running: the last words)" in line for line in words[1:3])
    assert words[3].startswith("stream nobody-ordered-it should run and was never ordered")


def _partition(spec: JobSpec, topic: str) -> PartitionStatus:
    return PartitionStatus(
        job=spec.job, transform="t", topic=topic, partition=0, digest="d", generation=1, state="running", offset=4,
        lag=6, rate=0.0, since_offset=0, updated_ms=now_ms(), records_in=4,
    )  # fmt: skip

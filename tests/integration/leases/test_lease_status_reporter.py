"""The partition statuses that leases write to a real status topic."""

from __future__ import annotations

import socket
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import replace

from wasmline.consumer import ConsumerHealth, State
from wasmline.consumer.health import Counters, PartitionHealth
from wasmline.consumer.partition_counters import PartitionCounters
from wasmline.control import Deployment, DeploymentSpec, StatusTopic
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.leases.lease import Lease
from wasmline.leases.lease_status_reporter import LeaseStatusReporter, unread
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition

SPEC = DeploymentSpec(name="t", version="1.0.0", digest="sha256:" + "0" * 64, input_topic="in", output_topics=("out",))


def test_a_generation_begins_where_its_first_lease_did_however_far_that_has_come(kafka: RunningKafka) -> None:
    def report(lease: Lease, next_commit: int) -> tuple[int, int, int]:
        """Return the generation, since_offset and offset after a lease that ended at ``next_commit``."""
        reporter = LeaseStatusReporter(kafka.config, lease, lambda: True)
        reporter.close(health(next_commit), {})
        [status] = log.of(job.job)
        return status.generation, status.since_offset, status.offset

    job = JobSpec(job=f"j-{uuid.uuid4()}", run="r", storage="s", stream=StreamSpec(transform="t", mode="parallel"))
    older = Deployment(spec=SPEC, generation=2, state="running", updated_ms=0)
    newer = replace(older, generation=3)
    lease = Lease(
        job=job,
        deployment=newer,
        driver="d",
        epoch=1,
        topic="in",
        until=time.time() + 60,
        control_offsets={},
        progress={0: 100},
    )
    log = StatusTopic(kafka.config)
    log.write([replace(unread(job, older, "in", 0), offset=90, since_offset=7)])

    assert report(lease, 250) == (3, 100, 250)
    assert report(replace(lease, epoch=2, progress={0: 250}), 300) == (3, 100, 300)
    assert report(replace(lease, epoch=3, deployment=replace(newer, generation=4), progress={0: 300}), 301) == (
        4,
        300,
        301,
    )
    log.close()


def test_a_generation_counts_its_own_records_over_several_leases(kafka: RunningKafka) -> None:
    job = JobSpec(job=f"j-{uuid.uuid4()}", run="r", storage="s", stream=StreamSpec(transform="t", mode="parallel"))
    older = Deployment(spec=SPEC, generation=2, state="running", updated_ms=0)
    log = StatusTopic(kafka.config)

    def report(generation: int, records: int, failed: int) -> tuple[int, int, int]:
        """Return records_in and the generation's counts after a lease that has processed so many records."""
        deployment = replace(older, generation=generation)
        lease = Lease(
            job=job, deployment=deployment, driver="d", epoch=1, topic="in", until=time.time() + 60, control_offsets={},
            progress={0: 0},
        )  # fmt: skip
        found = health(records)
        counts = PartitionCounters(records=records, dead_letters=Counter({"Rejected: no": failed}))
        LeaseStatusReporter(kafka.config, lease, lambda: True).close(
            replace(found, partitions=(replace(found.partitions[0], counts=counts),)), {}
        )
        [status] = log.of(job.job)
        assert status.host == socket.gethostname()
        return status.records_in, status.generation_records, status.generation_dead_letters

    with closing(log):
        assert report(2, 50, 5) == (50, 50, 5)
        assert report(2, 10, 1) == (60, 60, 6)
        assert report(3, 4, 2) == (64, 4, 2)
        assert report(3, 1, 0) == (65, 5, 2)


def health(next_commit: int) -> ConsumerHealth:
    partition = PartitionHealth(
        partition=TopicPartition("in", 0), next_commit=next_commit, lag=0, oldest=None, queued=0, in_flight=0,
        buffered_bytes=0, incompletes=0, paused=False, blocked=False,
    )  # fmt: skip
    return ConsumerHealth(state=State.RUNNING, counters=Counters(), partitions=(partition,))

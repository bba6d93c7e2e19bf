"""Brokers go and come back under leases: each record's output is there once, in the order of its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from support.chaos.consumer_group import ENDS
from support.chaos.outages import OutageTimer, at_work
from support.leases.lease_harness import EXACTLY_ONCE, LeaseHarness
from support.rounds import rounds
from wasmline.local import LocalKafka
from wasmline.testing.kafka import RunningKafka


@contextmanager
def job_at_work(kafka: RunningKafka, folder: Path) -> Iterator[OutageTimer]:
    with (
        LeaseHarness(kafka.config, folder, **EXACTLY_ONCE) as harness,
        harness.letting(slots=1),
        at_work(harness) as stalls,
    ):
        yield stalls


def test_the_only_broker_is_restarted(
    stoppable_kafka: RunningKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def restart(stop: Callable[[LocalKafka, int], None]) -> None:
        stop(stoppable_kafka.local, 1)
        stoppable_kafka.local.start_node(1)

    with job_at_work(stoppable_kafka, tmp_path) as stalls:
        for number in rounds():
            stalls.after(partial(restart, ENDS[number % 2]))
    stalls.tell(capsys)


@pytest.mark.long
def test_one_of_three_brokers_is_killed_and_comes_back(
    kafka_cluster: Callable[[], RunningKafka], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = kafka_cluster()
    client = AdminClient(cluster.config.client())
    with job_at_work(cluster, tmp_path) as stalls:
        for number in rounds():
            node = 1 + number % 3
            stalls.after(partial(cluster.local.kill_node, node))
            cluster.local.start_node(node)
            stalls.harness.until(partial(_in_sync, client), "all replicas")
    stalls.tell(capsys)


def _in_sync(client: AdminClient) -> bool:
    """Say whether every partition has all its replicas: only then can it do without any one of them."""
    try:
        topics = client.list_topics(timeout=10).topics.values()
    except KafkaException:
        return False  # it asked the broker that had only just gone, or come back
    return all(len(each.isrs) == len(each.replicas) for topic in topics for each in topic.partitions.values())

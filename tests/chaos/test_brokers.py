"""Brokers go and come back: nothing is lost, and only what was finished about then may run twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from support.chaos.consumer_group import ENDS, EXACTLY_ONCE, TIMEOUT_S, ConsumerHarness
from support.rounds import BROKER_RESUME_LIMIT_S, resuming, rounds
from wasmline.kafka import read_to_end
from wasmline.kafka.hanging_transactions import Ended, end_hanging
from wasmline.kafka.transaction_log import TRANSACTION_STATE, Decision
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition


@pytest.fixture(scope="module")
def cluster(kafka_cluster: Callable[[], RunningKafka]) -> RunningKafka:
    return kafka_cluster()


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="at least once", marks=pytest.mark.long), pytest.param(EXACTLY_ONCE, id="transactions")],
)
def test_one_of_three_brokers_is_killed_and_comes_back(
    cluster: RunningKafka, tmp_path: Path, options: dict[str, object]
) -> None:
    with ConsumerHarness(cluster, tmp_path, options=options, sleep_ms=20, writes=True) as harness:
        harness.join(), harness.join()
        for number in rounds():
            harness.produce(1_000)
            harness.wait(200)
            node = harness.random.choice(cluster.local.running())
            harness.ledger.cut_off()
            ENDS[number % 2](cluster.local, node)
            harness.produce(500)
            with resuming(BROKER_RESUME_LIMIT_S):
                harness.wait(500)
            cluster.local.start_node(node)
            harness.wait(1_500)
            harness.ledger.back()
        harness.finish()
        harness.require_outputs()


def test_markers_for_a_partition_without_a_leader_are_lost_and_written_later(cluster: RunningKafka) -> None:
    """Kafka's own defect, in a cluster: docs/kafka-lost-markers.md. Once it is mended, nothing hangs here any more."""
    config, local = cluster.config, cluster.local
    topic = f"single-{uuid.uuid4()}"
    admin = AdminClient(config.client())
    admin.create_topics([NewTopic(topic, 6, 1, config={"min.insync.replicas": "1"})])[topic].result(30)
    assert wait_until(lambda: -1 not in leaders(admin, topic), TIMEOUT_S)
    name, group = f"id-{uuid.uuid4()}", f"group-{uuid.uuid4()}"
    writer = Producer(config.client(**{"transactional.id": name}))
    writer.init_transactions(30)
    victim = next(node for node in set(leaders(admin, topic)) if [node] != leaders(admin, TRANSACTION_STATE))
    hit = [number for number, leader in enumerate(leaders(admin, topic)) if leader == victim]
    writer.begin_transaction()
    for partition in range(6):
        writer.produce(topic, b"%d" % partition, partition=partition)
    assert writer.flush(30) == 0
    local.kill_node(victim)
    assert wait_until(lambda: victim not in leaders(admin, topic), TIMEOUT_S)
    writer.commit_transaction(30)
    local.start_node(victim)
    assert wait_until(lambda: -1 not in leaders(admin, topic), TIMEOUT_S)
    assert end_hanging(config, [name], group, [topic]) == [
        Ended(name, Decision.COMMIT, tuple(TopicPartition(topic, each) for each in hit))
    ]
    assert {each.value() for each in read_to_end(config, topic)} == {b"%d" % each for each in range(6)}


def leaders(admin: AdminClient, topic: str) -> list[int]:
    """Return who leads each partition; -1 is nobody."""
    known = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return [known[number].leader for number in sorted(known)]


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="at least once"), pytest.param(EXACTLY_ONCE, id="transactions", marks=pytest.mark.long)],
)
def test_the_only_broker_is_restarted(
    stoppable_kafka: RunningKafka, tmp_path: Path, options: dict[str, object]
) -> None:
    with ConsumerHarness(stoppable_kafka, tmp_path, options=options, sleep_ms=20, writes=True) as harness:
        harness.join(), harness.join()
        for number in rounds():
            harness.produce(1_000)
            harness.wait(200)
            harness.ledger.cut_off()
            ENDS[number % 2](stoppable_kafka.local, 1)
            stoppable_kafka.local.start_node(1)
            with resuming(BROKER_RESUME_LIMIT_S):
                harness.wait(1)
            harness.wait(1_000)
            harness.ledger.back()
        harness.finish()
        harness.require_outputs()

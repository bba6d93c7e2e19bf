"""A client that is older than a broker's end finds out who leads, and tells no offsets that nobody gave it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient

from support.chaos.consumer_group import TIMEOUT_S
from support.rounds import resuming, rounds
from wasmline.errors import BrokerUnavailable
from wasmline.job_offsets.microbatch_transactions import BatchTransaction, BatchTransactions
from wasmline.kafka import CompactedTopic, ConsumerGroups, Topics
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition


@pytest.mark.long
def test_what_is_written_after_a_leader_was_killed_is_read_by_clients_that_knew_it(
    kafka_cluster: Callable[[], RunningKafka],
) -> None:
    cluster = kafka_cluster()
    topic = cluster.topic()
    table, topics = CompactedTopic(cluster.config, topic), Topics(cluster.config)
    for number in rounds():
        table.read(), topics.end_offsets(topic)
        leader = AdminClient(cluster.config.client()).list_topics(topic, 10).topics[topic].partitions[0].leader
        cluster.local.kill_node(leader)
        written: dict[bytes, bytes | None] = {b"key": b"%d" % number}
        writer = CompactedTopic(cluster.config, topic)
        writer.compare_and_set("writer", partial(_always, written))
        assert table.read() == writer.read() == written
        assert topics.end_offsets(topic) == Topics(cluster.config).end_offsets(topic)
        writer.close()
        cluster.local.start_node(leader)
    table.close()


@pytest.mark.long
def test_an_attempt_that_waits_for_a_coordinator_that_has_left_the_cluster_is_given_up(
    kafka_cluster: Callable[[], RunningKafka],
) -> None:
    """Nothing wakes librdkafka then (its issue 5511). Once that is mended, no attempt is given up here any more."""
    cluster = kafka_cluster()
    config, source, group = cluster.config, TopicPartition(cluster.topic(), 0), f"group-{uuid.uuid4()}"
    ConsumerGroups(config).commit_offsets(group, {source: 0})
    admin = AdminClient(config.client())
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    node = described.coordinator.id
    transactions = BatchTransactions(config, group, group, {})

    def commit(progress: int, before: Callable[[BatchTransaction], None] = lambda _: None) -> None:
        with transactions.open([source]) as transaction:
            before(transaction)
            transaction.commit({source: CommittedOffset(progress)})

    def lose_known_coordinator(transaction: BatchTransaction) -> None:
        transaction._send({source: CommittedOffset(1)}, time.monotonic() + TIMEOUT_S)
        cluster.local.kill_node(node)
        assert wait_until(lambda: node not in transaction._client.list_topics(timeout=TIMEOUT_S).brokers, TIMEOUT_S)

    for _ in rounds(1):
        with closing(transactions), resuming():
            with pytest.raises(BrokerUnavailable, match="not answered within"):
                commit(2, lose_known_coordinator)
            commit(3)
    assert ConsumerGroups(config).committed(group, source.topic)[0] == 3


def _always(written: dict[bytes, bytes | None], _: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
    return written

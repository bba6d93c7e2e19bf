"""A client that is older than a broker's end finds out who leads, and tells no offsets that nobody gave it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient

from support.rounds import rounds
from wasmline.kafka import CompactedTopic, Topics
from wasmline.testing.kafka import RunningKafka


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


def _always(written: dict[bytes, bytes | None], _: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
    return written

"""What a consumer says of a broker that is away, or has lost something, on a real Kafka."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from support.consumers.clusters import Kafka, numbered
from support.consumers.running_consumer import PROMPT, Ledger, Running
from wasmline.consumer import ConsumerOptions, Delivery, Output
from wasmline.errors import CorruptRecord
from wasmline.kafka import CompactedTopic
from wasmline.kafka.topic_tailer import TopicTailer
from wasmline.local import LocalKafka
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

DELIVERIES = pytest.mark.parametrize("delivery", list(Delivery))

BEFORE = 50
"""The records before the corrupt batch."""


def test_the_health_tells_of_brokers_that_are_away(stoppable_kafka: RunningKafka) -> None:
    cluster, ledger = Kafka(stoppable_kafka), Ledger()
    options = ConsumerOptions(topics=(cluster.topic(),), group_id=f"group-{uuid.uuid4()}")
    timings = replace(PROMPT, statistics_interval_s=0.1)
    with Running(cluster, options, ledger.note, timings=timings) as running:
        running.until(lambda health: health.connected_brokers == 1)
        stoppable_kafka.local.kill_node(1)
        running.until(lambda health: health.connected_brokers == 0)
        stoppable_kafka.local.start_node(1)
        running.until(lambda health: health.connected_brokers == 1)
        cluster.write(*numbered(options.topics[0], 1))
        ledger.count(1)


@DELIVERIES
def test_a_corrupt_batch_ends_the_consumer_once_all_before_it_is_done(
    stoppable_kafka: RunningKafka, delivery: Delivery
) -> None:
    cluster, ledger = Kafka(stoppable_kafka), Ledger()
    topic, group = cluster.topic(), f"group-{uuid.uuid4()}"
    cluster.write(*numbered(topic, BEFORE))
    cluster.write(Output(topic, b"spoiled"))
    cluster.write(Output(topic, b"behind"))
    flip_a_bit(stoppable_kafka.local, topic, b"spoiled")

    # One record at a time: most of what is before the batch waits when that is met.
    options = ConsumerOptions(topics=(topic,), group_id=group, delivery=delivery, max_concurrency=1)
    with Running(cluster, options, ledger.note) as running:
        running.join()
    assert isinstance(running.failure, CorruptRecord)
    assert (running.failure.topic, running.failure.partition, running.failure.offset) == (topic, 0, BEFORE)
    assert f"{topic}-0: the batch at offset {BEFORE} is corrupt" in str(running.failure)
    assert ledger.offsets() == list(range(BEFORE))

    cluster.commit(group, {TopicPartition(topic, 0): CommittedOffset(BEFORE + 1, "")})
    with Running(cluster, options, ledger.note):
        ledger.count(BEFORE + 1)
    assert ledger.seen[-1].value == b"behind"


def test_readers_of_topics_name_a_corrupt_batch(stoppable_kafka: RunningKafka) -> None:
    cluster = Kafka(stoppable_kafka)
    topic = cluster.topic()
    cluster.write(*numbered(topic, 1))
    cluster.write(Output(topic, b"spoiled", b"key"))
    flip_a_bit(stoppable_kafka.local, topic, b"spoiled")
    tailer, table = TopicTailer(stoppable_kafka.config, [topic]), CompactedTopic(stoppable_kafka.config, topic)
    for read in (lambda: cluster.read(topic), lambda: list(tailer.poll()), table.read):
        with pytest.raises(CorruptRecord, match=f"{topic}-0: the batch at offset 1 is corrupt"):
            read()
    tailer.close()
    table.close()


def flip_a_bit(local: LocalKafka, topic: str, value: bytes) -> None:
    """Corrupt a value in the log of a topic, as a failing disk does, while its broker is down."""
    local.stop_node(1)
    [segment] = local.folder.glob(f"node-1/data/{topic}-0/*.log")
    log = bytearray(segment.read_bytes())
    log[log.index(value)] ^= 1
    segment.write_bytes(log)
    local.start_node(1)

"""Writing and reading back: producer, reader, and the offsets of groups."""

from __future__ import annotations

import uuid
from collections import defaultdict

import pytest

from wasmline.errors import (
    BrokerUnavailable,
    GroupInUse,
    InvalidKafkaConfig,
    KafkaError,
    OffsetOutOfRange,
    TopicNotFound,
)
from wasmline.kafka import (
    ConsumerGroups,
    KafkaConfig,
    RecordWriter,
    Topics,
    produce_all,
    producer,
    read_range,
    read_to_end,
)
from wasmline.pipeline.record_sizes import batch_bytes
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition


def values(messages: object) -> list[bytes | None]:
    return [message.value() for message in messages]  # type: ignore[attr-defined]


def test_a_record_comes_back_with_all_its_parts(kafka: RunningKafka) -> None:
    topic = kafka.topic()
    headers = [("a", b"1"), ("a", b"2"), ("none", None)]
    records = [(b"key", b"value", headers, 1_700_000_000_000), (None, None, None, None)]
    assert produce_all(kafka.config, topic, records) == 2
    full, empty = read_to_end(kafka.config, topic)
    assert (full.key(), full.value(), full.headers()) == (b"key", b"value", headers)
    assert full.timestamp()[1] == 1_700_000_000_000
    assert (empty.key(), empty.value(), empty.headers()) == (None, None, None)
    assert empty.timestamp()[1] > 1_700_000_000_000


def test_more_records_than_the_client_queues_arrive_complete_and_in_order(kafka: RunningKafka) -> None:
    topic = kafka.topic(partitions=3)
    small = KafkaConfig({**kafka.config.properties, "queue.buffering.max.messages": "100"})
    count = produce_all(small, topic, ((b"%d" % (index % 50), b"%d" % index, None, None) for index in range(20_000)))
    assert count == 20_000
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for message in read_to_end(kafka.config, topic):
        by_key[message.key()].append(int(message.value() or b""))
    assert sum(map(len, by_key.values())) == 20_000
    assert all(sequence == sorted(sequence) for sequence in by_key.values())


def test_keys_go_to_the_partitions_that_java_chooses(kafka: RunningKafka) -> None:
    # toPositive(murmur2(key)) % partitions of Apache Kafka's BuiltInPartitioner, by its published test vectors.
    java = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    topic = kafka.topic(partitions=7)
    produce_all(kafka.config, topic, [(key, b"", None, None) for key in java])
    chosen = {message.key(): message.partition() for message in read_to_end(kafka.config, topic)}
    assert chosen == {key: (digest & 0x7FFFFFFF) % 7 for key, digest in java.items()}


def test_writing_to_a_missing_topic_fails(kafka: RunningKafka) -> None:
    name = f"test-{uuid.uuid4()}"
    quick = KafkaConfig({**kafka.config.properties, "topic.metadata.propagation.max.ms": "500"})
    with pytest.raises(TopicNotFound, match=name):
        produce_all(quick, name, [(None, b"x", None, None)])


def test_a_record_that_the_broker_refuses_fails_the_write(kafka: RunningKafka) -> None:
    topic = kafka.topic(max_message_bytes="1000")
    with pytest.raises(KafkaError, match="MSG_SIZE_TOO_LARGE"):
        produce_all(kafka.config, topic, [(None, b"x" * 5000, None, None)])
    assert values(read_to_end(kafka.config, topic)) == []


def test_a_writer_goes_on_after_a_failure(kafka: RunningKafka) -> None:
    topic = kafka.topic(max_message_bytes="1000")
    with RecordWriter(kafka.config) as writer:
        assert writer.write(topic, [(None, b"one", None, None)]) == 1
        with pytest.raises(KafkaError):
            writer.write(topic, [(None, b"x" * 5000, None, None)])
        assert writer.write(topic, [(None, b"two", None, None)]) == 1
    assert values(read_to_end(kafka.config, topic)) == [b"one", b"two"]


def test_writing_to_nowhere_ends() -> None:
    nowhere = KafkaConfig({"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": "500"})
    with pytest.raises(BrokerUnavailable):
        produce_all(nowhere, "any", [(None, b"x", None, None)])


def test_a_producer_refuses_settings_that_would_lose_records(kafka: RunningKafka) -> None:
    with pytest.raises(InvalidKafkaConfig) as caught:
        producer(kafka.config, acks="1")
    assert caught.value.key == "enable.idempotence"


def test_a_slice_is_exactly_its_offsets(kafka: RunningKafka) -> None:
    topic = kafka.topic(partitions=2)
    client = producer(kafka.config)
    for index in range(100):
        client.produce(topic, b"%d" % index, partition=index % 2)
    client.flush()
    got: dict[int | None, list[int | None]] = defaultdict(list)
    for message in read_range(kafka.config, topic, {0: (10, 20), 1: (49, 50)}):
        got[message.partition()].append(message.offset())
    assert got == {0: list(range(10, 20)), 1: [49]}


def test_an_empty_slice_is_read_without_a_cluster() -> None:
    nowhere = KafkaConfig({"bootstrap.servers": "127.0.0.1:1"})
    assert list(read_range(nowhere, "any", {0: (5, 5)})) == []


def test_offsets_of_transactions_are_passed_over(kafka: RunningKafka) -> None:
    topic = kafka.topic()
    writer = producer(kafka.config, **{"transactional.id": f"test-{uuid.uuid4()}"})
    writer.init_transactions(30)
    for committed in (True, False, True, False):
        writer.begin_transaction()
        for index in range(3):
            writer.produce(topic, b"%s %d" % (b"kept" if committed else b"dropped", index))
        writer.flush()
        if committed:
            writer.commit_transaction(30)
        else:
            writer.abort_transaction(30)
    end = Topics(kafka.config).end_offsets(topic)[0]
    assert end == 16  # four times three records and a marker
    kept = [b"kept %d" % index for index in range(3)]
    assert values(read_to_end(kafka.config, topic)) == kept * 2
    assert values(read_range(kafka.config, topic, {0: (0, 3)})) == kept
    assert values(read_range(kafka.config, topic, {0: (3, 8)})) == []
    assert values(read_range(kafka.config, topic, {0: (4, 16)})) == kept


def test_records_of_an_open_transaction_are_not_part_of_the_topic_yet(kafka: RunningKafka) -> None:
    topic = kafka.topic()
    produce_all(kafka.config, topic, [(None, b"before", None, None)])
    writer = producer(kafka.config, **{"transactional.id": f"test-{uuid.uuid4()}"})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic, b"open")
    writer.flush()
    assert Topics(kafka.config).end_offsets(topic) == {0: 1}
    assert values(read_to_end(kafka.config, topic)) == [b"before"]
    writer.commit_transaction(30)
    assert values(read_to_end(kafka.config, topic)) == [b"before", b"open"]


@pytest.mark.parametrize("size", [10, 100, 9_000])
def test_a_topic_takes_what_measures_as_much_as_it_takes(kafka: RunningKafka, size: int) -> None:
    key, value, headers = b"key", b"v" * size, [("h", b"1"), ("é" * 70, None)]
    measured = batch_bytes(key, value, headers)
    fits, refuses = (kafka.topic(max_message_bytes=str(limit)) for limit in (measured, measured - 1))
    assert produce_all(kafka.config, fits, [(key, value, headers, None)]) == 1
    with pytest.raises(KafkaError, match="MSG_SIZE_TOO_LARGE"):
        produce_all(kafka.config, refuses, [(key, value, headers, None)])


def test_a_slice_whose_beginning_was_removed_is_an_error(kafka: RunningKafka) -> None:
    from confluent_kafka import TopicPartition as ClientPartition
    from confluent_kafka.admin import AdminClient

    topic = kafka.topic()
    produce_all(kafka.config, topic, [(None, b"%d" % index, None, None) for index in range(10)])
    admin = AdminClient(kafka.config.client())
    for answer in admin.delete_records([ClientPartition(topic, 0, 4)]).values():
        answer.result()
    with pytest.raises(OffsetOutOfRange, match="retention removed"):
        list(read_range(kafka.config, topic, {0: (2, 10)}))
    assert len(list(read_range(kafka.config, topic, {0: (4, 10)}))) == 6
    assert len(list(read_to_end(kafka.config, topic))) == 6


def test_a_reader_can_be_left_early(kafka: RunningKafka) -> None:
    topic = kafka.topic()
    produce_all(kafka.config, topic, [(None, b"%d" % index, None, None) for index in range(10)])
    messages = read_to_end(kafka.config, topic)
    assert next(messages).value() == b"0"
    messages.close()  # type: ignore[attr-defined]


def test_reading_a_missing_topic_fails(kafka: RunningKafka) -> None:
    with pytest.raises(TopicNotFound):
        list(read_to_end(kafka.config, f"test-{uuid.uuid4()}"))


def test_offsets_committed_for_a_group_are_what_the_group_reads(kafka: RunningKafka) -> None:
    groups, group, topic = ConsumerGroups(kafka.config), f"test-{uuid.uuid4()}", kafka.topic(partitions=3)
    assert groups.committed(group, topic) == {}
    groups.require_no_members(group)  # it is not there yet
    groups.commit_offsets(group, {TopicPartition(topic, 0): 7, TopicPartition(topic, 2): 0})
    assert groups.committed(group, topic) == {0: 7, 2: 0}
    groups.commit_offsets(group, {TopicPartition(topic, 0): 3})
    assert groups.committed(group, topic) == {0: 3, 2: 0}


def test_offsets_of_a_group_with_members_are_its_own_affair(kafka: RunningKafka) -> None:
    from confluent_kafka import Consumer

    group, topic = f"test-{uuid.uuid4()}", kafka.topic()
    produce_all(kafka.config, topic, [(None, b"x", None, None)])
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer(kafka.config.client(**settings))
    consumer.subscribe([topic])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"x"
        with pytest.raises(GroupInUse, match="has active members"):
            ConsumerGroups(kafka.config).commit_offsets(group, {TopicPartition(topic, 0): 1})
        with pytest.raises(GroupInUse, match="has active members") as caught:
            ConsumerGroups(kafka.config).require_no_members(group)
        assert len(caught.value.members) == 1
    finally:
        consumer.close()
    ConsumerGroups(kafka.config).require_no_members(group)  # it has none now

"""Ranges of offsets as columns, from a real broker: by compiled code, and through messages."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from wasmline.errors import BrokerUnavailable, OffsetOutOfRange
from wasmline.job_offsets import range_reader
from wasmline.job_offsets.range_reader import RangeReader
from wasmline.kafka import produce_all, topic_reader
from wasmline.kafka.compiled_columns import compiled_columns
from wasmline.kafka.transactional_producer import create_fencing_producer
from wasmline.testing.kafka import RunningKafka

Open = Callable[..., RangeReader]
Ranges = Mapping[int, tuple[int, int]]


@pytest.fixture(params=[True, False], ids=["compiled", "messages"])
def opened(request: pytest.FixtureRequest, kafka: RunningKafka) -> Iterator[Open]:
    readers: list[RangeReader] = []

    def opened(topic: str, reset: str = "error") -> RangeReader:
        readers.append(RangeReader(kafka.config, topic, compiled_columns() if request.param else None, reset=reset))
        return readers[-1]

    yield opened
    for reader in readers:
        reader.close()


def offsets(reader: RangeReader, ranges: Ranges) -> dict[int, list[int]]:
    """Read, and return the offsets by partition."""
    found: dict[int, list[int]] = {partition: [] for partition in ranges}
    for batch in reader.read(ranges):
        [partition] = set(batch.column("partition").to_pylist())
        found[partition] += batch.column("offset").to_pylist()
    return found


def produce(kafka: RunningKafka, topic: str, count: int) -> None:
    produce_all(kafka.config, topic, ((b"%d" % number, b"value", [("h", b"1")], 1) for number in range(count)))


def test_ranges_are_read_from_their_first_offset_to_their_end(kafka: RunningKafka, opened: Open) -> None:
    topic = kafka.topic(partitions=3)
    produce(kafka, topic, 3_000)
    reader = opened(topic)
    ranges = {0: (100, 600), 1: (0, 10), 2: (7, 7)}
    expected = {partition: list(range(*bounds)) for partition, bounds in ranges.items()}
    assert offsets(reader, ranges) == expected
    assert offsets(reader, {2: (0, 1), 0: (90, 110)}) == {2: [0], 0: list(range(90, 110))}
    assert offsets(reader, {1: (5, 5)}) == {1: []}
    assert offsets(reader, ranges) == expected


def test_a_range_may_begin_and_end_where_no_record_is(kafka: RunningKafka, opened: Open) -> None:
    """Markers of transactions, and the records of one that was aborted."""
    topic = kafka.topic()
    writer = create_fencing_producer(kafka.config, f"w-{uuid.uuid4()}", {}, time.monotonic() + 30)
    for number in range(4):
        writer.begin_transaction()
        for _ in range(10):
            writer.produce(topic, b"x")
        if number % 2:
            writer.flush()
            writer.abort_transaction()
        else:
            writer.commit_transaction()
    committed = [*range(10), *range(22, 32)]
    reader = opened(topic)
    assert offsets(reader, {0: (0, 44)}) == {0: committed}
    assert offsets(reader, {0: (0, 11)}) == {0: committed[:10]}
    assert offsets(reader, {0: (10, 22)}) == {0: []}
    assert offsets(reader, {0: (12, 25)}) == {0: [22, 23, 24]}
    assert offsets(reader, {0: (33, 44)}) == {0: []}


def test_what_retention_removed_is_an_error_or_left_out(kafka: RunningKafka, opened: Open) -> None:
    topic = kafka.topic()
    produce(kafka, topic, 100)
    admin = AdminClient(kafka.config.client())
    admin.delete_records([TopicPartition(topic, 0, 40)])[TopicPartition(topic, 0)].result(15)
    with pytest.raises(OffsetOutOfRange, match="no longer has offset 10"):
        offsets(opened(topic), {0: (10, 60)})
    lenient = opened(topic, "earliest")
    assert offsets(lenient, {0: (10, 60)}) == {0: list(range(40, 60))}
    assert offsets(lenient, {0: (10, 30)}) == {0: []}


def test_a_reader_whose_range_was_given_up_reads_the_next_one(kafka: RunningKafka, opened: Open) -> None:
    topic = kafka.topic(partitions=2)
    produce(kafka, topic, 5_000)
    reader = opened(topic)
    with closing(reader.read({0: (0, 2_000)})) as reading:  # type: ignore[type-var]
        next(reading)
    assert offsets(reader, {0: (0, 10), 1: (3, 5)}) == {0: list(range(10)), 1: [3, 4]}


def test_a_range_is_read_again_and_again(kafka: RunningKafka, opened: Open) -> None:
    """The client ends an assignment in a thread of its own, while the next one begins."""
    topic = kafka.topic(partitions=2)
    produce(kafka, topic, 100)
    reader = opened(topic)
    for _ in range(50):
        assert offsets(reader, {0: (0, 11), 1: (5, 20)}) == {0: list(range(11)), 1: list(range(5, 20))}


def test_a_range_of_aborted_records_is_read_however_long_it_takes(
    kafka: RunningKafka, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client fetches them and gives nobody anything."""
    monkeypatch.setattr(topic_reader, "IDLE_TIMEOUT_S", 0.25)
    topic = kafka.topic()
    writer = create_fencing_producer(kafka.config, f"w-{uuid.uuid4()}", {}, time.monotonic() + 30)
    for _ in range(150):
        writer.begin_transaction()
        writer.produce(topic, b"x" * 900_000)
        writer.flush()
        writer.abort_transaction()
    assert offsets(opened(topic), {0: (0, 300)}) == {0: []}


def test_what_is_done_with_a_batch_is_no_silence(
    kafka: RunningKafka, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "IDLE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(range_reader, "MAX_POLL_RECORDS", 5)
    topic = kafka.topic()
    produce(kafka, topic, 10)
    reader, polls = opened(topic), 0
    poll = reader._poll

    def poll_in_vain() -> Any:
        nonlocal polls
        polls += 1
        return ([], []) if polls == 1 else poll()

    found = []
    for batch in reader.read({0: (0, 10)}):
        monkeypatch.setattr(reader, "_poll", poll_in_vain)
        found += batch.column("offset").to_pylist()
        if len(found) < 10:
            time.sleep(1)
    assert found == list(range(10))


def test_ranges_that_follow_each_other_are_read_without_a_pause(kafka: RunningKafka, opened: Open) -> None:
    """A second for each would be half a minute."""
    topic = kafka.topic()
    produce(kafka, topic, 60_000)
    reader = opened(topic)
    slow = 0
    for begin in range(0, 30_000, 1_000):
        began = time.monotonic()
        assert offsets(reader, {0: (begin, begin + 1_000)}) == {0: list(range(begin, begin + 1_000))}
        slow += time.monotonic() - began > 0.9
        time.sleep(0.02)
    assert slow < 5


def test_a_range_that_does_not_exist_yet_is_not_awaited_forever(
    kafka: RunningKafka, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "IDLE_TIMEOUT_S", 1.0)
    topic = kafka.topic()
    produce(kafka, topic, 10)
    with pytest.raises(BrokerUnavailable, match=r"still to read, up to: \{0: 20\}"):
        offsets(opened(topic), {0: (0, 20)})

"""Records of every shape become the same columns by compiled code as through messages, and outputs the same records."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from support.consumers.clusters import Kafka
from wasmline.consumer.columns import RecordColumns
from wasmline.kafka import librdkafka_ctypes, producer
from wasmline.kafka.compiled_columns import ColumnReader, CompiledColumns, CompiledWriter
from wasmline.kafka.message_columns import MessageWriter, columns_by_partition
from wasmline.record_batches import TIMED_OUTPUT_SCHEMA
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition

PARTITIONS = 3
TIMEOUT_S = 20.0

nullable_bytes = st.none() | st.binary(max_size=20) | st.integers(1, 30_000).map(lambda size: b"x" * size)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
headers = st.none() | st.lists(st.tuples(names, nullable_bytes), max_size=4).map(lambda pairs: pairs or None)
rows = st.fixed_dictionaries(
    {
        "row": st.just(0),
        "output": st.integers(0, 1),
        "key": nullable_bytes,
        "value": nullable_bytes,
        "headers": headers,
        "timestamp": st.integers(1, 2**40),
    }
)
LARGE = {"row": 0, "output": 1, "key": b"k" * 400_000, "value": b"v" * 500_000, "headers": None, "timestamp": 1}


class Columns:
    """Two topics, their writers and readers, of either way."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.library = CompiledColumns()
        self.topics = [kafka.topic(PARTITIONS, **{"message.timestamp.before.max.ms": str(2**62)}) for _ in range(2)]
        self.producer = producer(kafka.config, **{"linger.ms": "0", **self.library.producer_settings})
        self.messages, self.columns = (self._consumer(kafka) for _ in range(2))
        self.reader = ColumnReader(self.library, self.columns, 1_000)
        places = [(topic, number) for topic in self.topics for number in range(PARTITIONS)]
        self.reader.add([TopicPartition(*place) for place in places])
        for consumer in (self.messages, self.columns):
            consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])

    @staticmethod
    def _consumer(kafka: RunningKafka) -> Consumer:
        return Consumer(kafka.config.client(**{"group.id": f"shapes-{uuid.uuid4()}", "enable.auto.commit": "false"}))

    def write(self, writer: CompiledWriter | MessageWriter) -> None:
        while not writer.write(self.producer):
            self.producer.poll(0.01)
        assert self.producer.flush(TIMEOUT_S) == 0
        assert writer.answers() == (0, [])

    def read(self, count: int) -> tuple[list[RecordColumns], list[RecordColumns]]:
        """Return the next records, through messages and by compiled code."""
        messages: list[Any] = []
        while len(messages) < count:
            messages += self.messages.consume(count - len(messages), 1)
        parts: list[RecordColumns] = []
        while sum(map(len, parts)) < count:
            assert self.columns.poll(0) is None
            found, errors = self.reader.read(count, 0.5)
            assert not errors
            parts += [RecordColumns(*each) for each in found]
        return [RecordColumns(*each) for each in columns_by_partition(messages)], parts

    def close(self) -> None:
        self.reader.close()
        self.messages.close()
        librdkafka_ctypes.close(self.columns)


@pytest.fixture(scope="module")
def columns(real_cluster: Kafka, kafka: RunningKafka) -> Iterator[Columns]:
    with closing(Columns(kafka)) as opened:
        yield opened


def by_partition(parts: Sequence[RecordColumns]) -> dict[TopicPartition, Any]:
    """Return all columns of each partition, and the size that each part says it has."""
    found: dict[TopicPartition, list[RecordColumns]] = {}
    for part in parts:
        found.setdefault(part.partition, []).append(part)
    return {
        partition: (pa.Table.from_batches([each.batch for each in parts]).to_pydict(), sum(each.size for each in parts))
        for partition, parts in found.items()
    }


# A case that fails leaves records behind, so none is made smaller.
@settings(
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(outputs=[LARGE, LARGE], before=0, after=0, by_messages=False)
@given(
    outputs=st.lists(rows, min_size=1, max_size=30),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
    by_messages=st.booleans(),
)
def test_records_of_every_shape(
    columns: Columns, outputs: list[dict[str, Any]], before: int, after: int, by_messages: bool
) -> None:
    others = [{**outputs[0], "value": b"not to be written"}]
    batch = pa.RecordBatch.from_pylist([*others * before, *outputs, *others * after], schema=TIMED_OUTPUT_SCHEMA)
    batch.validate(full=True)
    batch = batch.slice(before, len(outputs))
    if by_messages:
        columns.write(MessageWriter(batch, columns.topics))
    else:
        columns.write(CompiledWriter(columns.library, batch, columns.topics))
    through_messages, compiled = columns.read(len(outputs))
    for part in compiled:
        part.batch.validate(full=True)
    assert by_partition(compiled) == by_partition(through_messages)
    read = [(*record[3:5], list(record[5]), record[6]) for part in compiled for record in part.records()]
    written = [(row["key"], row["value"], row["headers"] or [], row["timestamp"]) for row in outputs]
    assert sorted(map(repr, read)) == sorted(map(repr, written))

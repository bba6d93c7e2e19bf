"""The writer of control topics, on a real Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from wasmline.errors import Conflict
from wasmline.kafka import read_to_end
from wasmline.kafka.compacted_topic import TopicRecord, TransactionalWriter
from wasmline.testing.kafka import RunningKafka

FENCED_S = 1.0
"""Seconds within which a producer hears that it is fenced, once it writes."""


def test_a_writer_that_is_fenced_between_two_records_is_in_conflict(kafka: RunningKafka) -> None:
    topic, other, name = kafka.topic(), kafka.topic(), f"writer-{uuid.uuid4()}"

    class Slow(list[TopicRecord]):
        def __iter__(self) -> Iterator[TopicRecord]:
            for record in super().__iter__():
                yield record
                time.sleep(FENCED_S)

    def fence() -> Slow:
        TransactionalWriter(kafka.config, topic, name).close()
        return Slow([TopicRecord(other, b"key", b"1"), TopicRecord(other, b"key", b"2")])

    with (
        closing(TransactionalWriter(kafka.config, topic, name)) as writer,
        pytest.raises(Conflict, match=f"another writer took over {name}"),
    ):
        writer.write({b"key": b"value"}, before_commit=fence)
    assert not list(read_to_end(kafka.config, topic))
    assert not list(read_to_end(kafka.config, other))

"""The writer of control topics, on a real Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # public, though not in its __all__

from wasmline.errors import Conflict, RecordRejected
from wasmline.kafka import read_to_end
from wasmline.kafka.bounded_admin_client import BoundedAdminClient
from wasmline.kafka.compacted_topic import TopicRecord, TransactionalWriter
from wasmline.kafka.list_offsets import list_offsets
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka

FENCED_S = 1.0
"""Seconds within which a producer hears that it is fenced, once it writes."""

ABORTED_S = 5.0
"""Seconds within which a transaction is over that was aborted: half of the writer's time-out of transactions."""


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


def test_a_transaction_whose_record_is_rejected_holds_up_no_reader(kafka: RunningKafka) -> None:
    topic, compacted, name = kafka.topic(), kafka.topic(cleanup_policy="compact"), f"writer-{uuid.uuid4()}"
    admin = BoundedAdminClient(kafka.config, 30)

    def is_over() -> bool:
        latest = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        end = list_offsets(admin, latest, IsolationLevel.READ_UNCOMMITTED)
        return bool(end[0]) and list_offsets(admin, latest, IsolationLevel.READ_COMMITTED) == end

    with closing(TransactionalWriter(kafka.config, topic, name)) as writer:
        with pytest.raises(RecordRejected):
            writer.write({b"key": b"value"}, [TopicRecord(compacted, None, b"no key for a compacted topic")])
        assert wait_until(is_over, ABORTED_S)

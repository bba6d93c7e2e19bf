"""Where garbage is collected rarely, what a consumer is done with is freed without the collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from support.consumers.clusters import Cluster, Kafka, Memory, numbered
from support.consumers.column_handlers import ColumnHandlers
from support.consumers.running_consumer import Running
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Delivery, Output, RetryPolicy
from wasmline.consumer.columns import ColumnResult, OutputColumns, RecordColumns
from wasmline.consumer.handler_adapters import Handler
from wasmline.consumer.state.calls import Call
from wasmline.consumer.state.column_queue import ColumnBatch

RECORDS = 300
FAILING = 13
"""The offset of the record that always fails."""

REFUSED = 150
"""The offset of the record whose output is too large for its topic."""

LARGE = (Call, ColumnBatch, ColumnResult, ConsumedRecord, Output, OutputColumns, RecordColumns, pa.RecordBatch)
"""Types of the objects that records and outputs are in."""


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Memory() if request.param == "memory" else Kafka(request.getfixturevalue("kafka"))


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only the collector would free, once it has run."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


class Copies:
    """Handlers that copy records to a topic; FAILING fails, and of REFUSED the output is too large."""

    def __init__(self, target: str) -> None:
        self._target = target

    def one(self, record: ConsumedRecord) -> list[Output]:
        if record.offset == FAILING:
            raise ValueError("it always fails")
        value = b"x" * 50_000 if record.offset == REFUSED else record.value
        return [Output(self._target, value, record.key, record.headers, record.timestamp)]

    def many(self, records: Sequence[ConsumedRecord]) -> list[Output]:
        return [output for record in records for output in self.one(record)]

    async def coroutine(self, record: ConsumedRecord) -> list[Output]:
        return self.one(record)


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("kind", ["one", "many", "coroutine", "columns"])
def test_what_is_done_is_in_no_reference_cycle(
    cluster: Cluster, group: str, delivery: Delivery, kind: str, garbage: list[object]
) -> None:
    topic, target, dead = cluster.topic(), cluster.topic(max_message_bytes=10_000), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))
    copies = Copies(target)
    handler: Handler = ColumnHandlers(copies.one) if kind == "columns" else getattr(copies, kind)
    options = ConsumerOptions(
        topics=(topic,),
        group_id=group,
        delivery=delivery,
        batch_size=20 if kind in ("many", "columns") else None,
        commit_interval_ms=20,
        max_concurrency=2,
        dead_letter_topic=dead,
        retry=RetryPolicy(max_attempts=2, delay_ms=0),
    )
    with Running(cluster, options, handler) as running:
        running.until(lambda health: [each.settled for each in health.partitions] == [RECORDS])
        gc.collect()
        assert [type(each) for each in garbage if isinstance(each, LARGE)] == []
    assert len({record.value for record in cluster.read(target)}) == RECORDS - 2

"""How long a transaction takes: outputs, the input's offset and its offset map, on one node."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wasmline.consumer import ConsumerOptions, Delivery, Output
from wasmline.consumer.backends.kafka import KafkaBackend
from wasmline.kafka import KafkaConfig, Topics, produce_all
from wasmline.offset_maps import codec
from wasmline.topic_partitions import CommittedOffset, TopicPartition

RECORDS = 500
WARM_UP = 200
"""Transactions that are not counted: a broker that has just started is slow at first."""

TIMES = 60
VALUE = b"x" * 100


@dataclass
class Assigned:
    """A listener that takes what it gets."""

    partitions: tuple[TopicPartition, ...] = ()

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        self.partitions = tuple(partitions)
        return dict.fromkeys(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        raise AssertionError(f"{partition} does not have offset {offset}")


def milliseconds(config: KafkaConfig, interval: float) -> list[float]:
    """Return what each of many commits took that follow each other after ``interval`` seconds.

    A commit is ``KafkaTransactions.commit`` for one partition: begin, write 500 records of 100 bytes, send the
    offset with its map (every other of the next 500 records is done), commit; it returns when the broker has said yes.
    """
    source, target = (f"{noun}-{uuid.uuid4().hex[:6]}" for noun in ("source", "target"))
    Topics(config).create(source, 1)
    Topics(config).create(target, 3)
    produce_all(config, source, [(b"key", b"value", None, None)] * 10)
    options = ConsumerOptions(
        topics=(source,), group_id=f"bench-{source}", delivery=Delivery.EXACTLY_ONCE, kafka=config.properties
    )
    backend, assigned = KafkaBackend(options), Assigned()
    outputs = [Output(target, VALUE, b"key-%d" % (number % 50)) for number in range(RECORDS)]
    taken: list[float] = []
    try:
        backend.source.open(assigned)
        while not assigned.partitions:
            backend.source.poll(1, 1.0)
        backend.transactions.open(assigned.partitions)
        for number in range(WARM_UP + TIMES):
            base = number * RECORDS
            progress = CommittedOffset(base, codec.encode(base, base + RECORDS - 1, range(base, base + RECORDS, 2)))
            began = time.perf_counter()
            failures = backend.transactions.begin(dict.fromkeys(assigned.partitions, (outputs, progress)))()
            taken.append((time.perf_counter() - began) * 1_000)
            if failures:
                raise SystemExit(f"a transaction failed: {failures}")
            if number >= WARM_UP:
                time.sleep(interval)
    finally:
        backend.transactions.close()
        backend.source.close()
    return taken[WARM_UP:]

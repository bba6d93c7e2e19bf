"""Kafka → Python function → Kafka by a loop of confluent-kafka, as a careful user writes it.

    python_loop.py BOOTSTRAP GROUP INPUT FEATURES DEAD_LETTERS at_least_once|exactly_once

SIGTERM ends it in order.
"""

from __future__ import annotations

import signal
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer
from delivery_in_python import transform

BATCH = 10_000
"""Most records of a call and of a transaction; more of them are not faster."""

FETCH_WAIT_S = 0.1
COMMIT_INTERVAL_S = 5.0
LINGER_MS = 50
"""Milliseconds that a batch waits for records. Kafka Streams' wait 100; the default of 5 makes small batches."""

REASON = [("error.reason", b"violates the contract")]


class Loop:
    """One process of the group."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], *, exactly_once: bool) -> None:
        common = {"bootstrap.servers": bootstrap}
        self._features, self._dead_letters = topics[1:]
        self._exactly_once = exactly_once
        self._next_commit = 0.0
        self._uncommitted = False
        reading = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**common, **reading})
        writing: dict[str, Any] = {"enable.idempotence": True, "linger.ms": LINGER_MS}
        writing |= {"delivery.report.only.error": True, "on_delivery": _refused}
        if exactly_once:
            writing["transactional.id"] = f"{group}-{uuid.uuid4()}"
        self._producer = Producer({**common, **writing})
        if exactly_once:
            self._producer.init_transactions()
        self._consumer.subscribe([topics[0]], on_revoke=lambda *_: self._commit())

    def turn(self) -> None:
        """Transform and write one batch. A rebalance is between two turns, in ``consume``."""
        messages = self._consumer.consume(BATCH, FETCH_WAIT_S)
        if self._exactly_once and messages:
            self._producer.begin_transaction()
        for message in messages:
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            value = message.value()
            feature = transform(value) if value is not None else None
            if feature is not None:
                self._write(self._features, feature, message.key())
            else:
                self._write(self._dead_letters, value, message.key(), headers=REASON)
        if self._exactly_once and messages:
            positions = self._consumer.position(self._consumer.assignment())
            self._producer.send_offsets_to_transaction(positions, self._consumer.consumer_group_metadata())
            self._producer.commit_transaction()
        elif messages:
            self._uncommitted = True
            if time.monotonic() >= self._next_commit:
                self._commit()

    def close(self) -> None:
        """Leave the group, after a commit."""
        self._consumer.close()

    def _write(self, topic: str, value: bytes | None, key: bytes | None, **more: Any) -> None:
        while True:
            try:
                return self._producer.produce(topic, value, key, **more)
            except BufferError:  # its queue is full
                self._producer.poll(0.05)

    def _commit(self) -> None:
        """At least once: outputs first, then progress."""
        if not self._uncommitted:
            return
        if self._producer.flush(60):
            raise SystemExit("the broker does not acknowledge the outputs")
        self._consumer.commit(asynchronous=False)
        self._uncommitted = False
        self._next_commit = time.monotonic() + COMMIT_INTERVAL_S


def _refused(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise SystemExit(str(error))


def main() -> None:
    """Run until SIGTERM."""
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    bootstrap, group, *topics, delivery = sys.argv[1:]
    loop = Loop(bootstrap, group, topics, exactly_once=delivery == "exactly_once")
    while not stopped:
        loop.turn()
    loop.close()


if __name__ == "__main__":
    main()

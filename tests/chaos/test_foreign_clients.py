"""Clients that are not ours take part in the group, or commit what we cannot read."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer

from support.chaos.consumer_group import LONG_SESSION_MS, QUICK, ConsumerHarness
from support.rounds import ROUNDS, rounds
from wasmline.testing.kafka import RunningKafka

FOREIGN = [
    base64.b64encode(b"\x02" + (1_700_000_000_000).to_bytes(8, "big")).decode(),  # a time-stamp of Kafka Streams
    "",
    "none of your business",
    "AAAA",
    "\u00fc" * 400,
    "l" * 4_000,
]


def stranger(harness: ConsumerHarness, strategy: str) -> Consumer:
    settings = {
        **QUICK,
        "session.timeout.ms": str(LONG_SESSION_MS),
        "group.id": harness.group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    client = Consumer(harness.kafka.config.client(**settings, **{"partition.assignment.strategy": strategy}))
    client.subscribe([harness.topic])
    return client


def visit(harness: ConsumerHarness) -> None:
    """Take part until there were partitions and a record of them."""
    client = stranger(harness, "cooperative-sticky")
    harness.until(lambda: client.consume(1, 0.1) or client.assignment(), "its share of the partitions")
    harness.produce(200)
    harness.until(partial(client.consume, 1, 0.1), "a record of them")
    client.close()


def test_a_plain_consumer_joins_and_leaves(kafka: RunningKafka, tmp_path: Path) -> None:
    """It commits nothing, so its partitions are done by us once it is gone; what we had finished stays finished."""
    with ConsumerHarness(kafka, tmp_path, sleep_ms=20, session_ms=LONG_SESSION_MS) as harness:
        harness.join(), harness.join()
        harness.produce(500)
        harness.wait(100)
        for _ in rounds(2 * ROUNDS):
            visit(harness)
            harness.wait(100)
        harness.finish()
        assert harness.ledger.again == 0


def test_a_consumer_of_another_protocol_is_kept_out(kafka: RunningKafka, tmp_path: Path) -> None:
    with ConsumerHarness(kafka, tmp_path, sleep_ms=20, session_ms=LONG_SESSION_MS) as harness:
        harness.join()
        harness.produce(500)
        harness.wait(100)
        client = stranger(harness, "range")
        message = client.poll(10)
        assert message is not None
        assert (error := message.error()) is not None
        assert error.name() == "INCONSISTENT_GROUP_PROTOCOL"
        client.close()
        harness.finish()
        assert harness.ledger.again == 0


def test_foreign_metadata_costs_the_map_and_nothing_else(kafka: RunningKafka, tmp_path: Path) -> None:
    """Confluent's #326 and #327: metadata of Kafka Streams in the group keeps the consumer from starting."""
    with ConsumerHarness(
        kafka, tmp_path, sleep_ms=50, keys=100, partitions=len(FOREIGN), session_ms=LONG_SESSION_MS
    ) as harness:
        harness.produce(500)
        harness.join()
        harness.wait(150)
        harness.leave(harness.members[0])
        harness.tamper(FOREIGN)
        harness.produce(200)  # a partition without anything to do would keep the foreign metadata
        harness.join()
        harness.finish()

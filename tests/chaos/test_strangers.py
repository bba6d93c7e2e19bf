"""Clients that are not ours take part in the group, or commit what we cannot read."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer

from support.chaos.consumer_group import LONG_SESSION_MS, QUICK, Rig
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


def stranger(rig: Rig, strategy: str) -> Consumer:
    settings = {
        **QUICK,
        "session.timeout.ms": str(LONG_SESSION_MS),
        "group.id": rig.group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    client = Consumer(rig.kafka.config.client(**settings, **{"partition.assignment.strategy": strategy}))
    client.subscribe([rig.topic])
    return client


def visit(rig: Rig) -> None:
    """Take part until there were partitions and a record of them."""
    client = stranger(rig, "cooperative-sticky")
    rig.until(lambda: client.consume(1, 0.1) or client.assignment(), "its share of the partitions")
    rig.feed(200)
    rig.until(partial(client.consume, 1, 0.1), "a record of them")
    client.close()


def test_a_plain_consumer_joins_and_leaves(kafka: RunningKafka, tmp_path: Path) -> None:
    """It commits nothing, so its partitions are done by us once it is gone; what we had finished stays finished."""
    with Rig(kafka, tmp_path, sleep_ms=20, session_ms=LONG_SESSION_MS) as rig:
        rig.join(), rig.join()
        rig.feed(500)
        rig.wait(100)
        for _ in rounds(2 * ROUNDS):
            visit(rig)
            rig.wait(100)
        rig.finish()
        assert rig.ledger.again == 0


def test_a_consumer_of_another_protocol_is_kept_out(kafka: RunningKafka, tmp_path: Path) -> None:
    with Rig(kafka, tmp_path, sleep_ms=20, session_ms=LONG_SESSION_MS) as rig:
        rig.join()
        rig.feed(500)
        rig.wait(100)
        client = stranger(rig, "range")
        message = client.poll(10)
        assert message is not None
        assert (error := message.error()) is not None
        assert error.name() == "INCONSISTENT_GROUP_PROTOCOL"
        client.close()
        rig.finish()
        assert rig.ledger.again == 0


def test_foreign_metadata_costs_the_map_and_nothing_else(kafka: RunningKafka, tmp_path: Path) -> None:
    """Confluent's #326 and #327: metadata of Kafka Streams in the group keeps the consumer from starting."""
    with Rig(kafka, tmp_path, sleep_ms=50, keys=100, partitions=len(FOREIGN), session_ms=LONG_SESSION_MS) as rig:
        rig.feed(500)
        rig.join()
        rig.wait(150)
        rig.leave(rig.members[0])
        rig.tamper(FOREIGN)
        rig.feed(200)  # a partition without anything to do would keep the foreign metadata
        rig.join()
        rig.finish()

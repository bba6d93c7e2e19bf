"""Brokers go and come back under micro-batches: each record's output is there, in the order of its key."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from support import outputs
from support.chaos.consumer_group import ENDS, TIMEOUT_S
from support.chaos.outages import NOT_IDEMPOTENT, in_sync
from support.record_traffic import Feed, Record
from support.rounds import BROKER_RESUME_LIMIT_S, resuming, rounds
from support.streams.transform_job import TransformJob, by_key, make_transform_job, until
from wasmline.errors import BrokerUnavailable
from wasmline.local.process import wait_until
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka

RATE = 100
"""Records that are written in a second, whatever happens."""

KEYS = 40

DELIVERIES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])


class Traffic:
    """Records that are written to a job at work, and what has come of them."""

    def __init__(self, job: TransformJob, delivery: str) -> None:
        self.job = job
        self.delivery = delivery
        self.acknowledged: list[Record] = []

    def run(self, kafka: RunningKafka, faults: Callable[[int], None]) -> None:
        """Go through the rounds, and see each record's output: once, or at least once."""

        def note(number: int, _: Any) -> None:
            self.acknowledged.append(record(number))

        with self.job.running(delivery=self.delivery):
            with Feed(kafka.config, self.job.spec.input_topic, RATE, record, note, **NOT_IDEMPOTENT):
                until(partial(self._is_beyond, 0))
                for number in rounds():
                    faults(number)
            # A producer that is not idempotent repeats requests, so that a record may be there twice.
            written = self.job.written()
            assert set(written) == set(self.acknowledged)
            until(partial(self._has_all, written), TIMEOUT_S)
        seen, expected = self._by_key(self._outputs()), self._by_key(written)
        assert seen == expected

    def go_on(self) -> None:
        """See outputs of what is written from now on."""
        with resuming(BROKER_RESUME_LIMIT_S):
            until(partial(self._is_beyond, len(self._outputs()) + RATE), TIMEOUT_S)

    def _outputs(self) -> list[Record]:
        """Read the outputs, once each partition has a leader."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return [(key, value) for key, value, _ in self.job.out()]
            except BrokerUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _is_beyond(self, count: int) -> bool:
        return len(self._outputs()) > count

    def _has_all(self, written: list[Record]) -> bool:
        seen = self._outputs()
        return len(seen) >= len(written) and set(seen) >= set(written)

    def _by_key(self, records: list[Record]) -> dict[bytes, list[bytes]]:
        """Return records in the order of their keys; at least once, each where it comes first."""
        found = by_key(records)
        return outputs.first_ones(found) if self.delivery == "at_least_once" else found


def traffic(kafka: RunningKafka, spark: SparkSession, folder: Path, delivery: str) -> Traffic:
    job = make_transform_job(kafka.config, spark, folder)
    job.deploy(guest())
    return Traffic(job, delivery)


@DELIVERIES
def test_the_only_broker_is_restarted(
    stoppable_kafka: RunningKafka, spark: SparkSession, tmp_path: Path, delivery: str
) -> None:
    going = traffic(stoppable_kafka, spark, tmp_path, delivery)

    def restart(number: int) -> None:
        ENDS[number % 2](stoppable_kafka.local, 1)
        stoppable_kafka.local.start_node(1)
        going.go_on()

    going.run(stoppable_kafka, restart)


@pytest.mark.long
@DELIVERIES
def test_one_of_three_brokers_is_killed_and_comes_back(
    kafka_cluster: Callable[[], RunningKafka], spark: SparkSession, tmp_path: Path, delivery: str
) -> None:
    cluster = kafka_cluster()
    client = AdminClient(cluster.config.client())
    going = traffic(cluster, spark, tmp_path, delivery)

    def kill(number: int) -> None:
        node = 1 + number % 3
        cluster.local.kill_node(node)
        going.go_on()
        cluster.local.start_node(node)
        assert wait_until(partial(in_sync, client), TIMEOUT_S)

    going.run(cluster, kill)


def record(number: int) -> Record:
    return b"key-%d" % (number % KEYS), b"%d" % number

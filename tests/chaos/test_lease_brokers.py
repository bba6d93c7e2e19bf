"""Brokers go and come back under leases: each record's output is there once, in the order of its key."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lease_rig import EXACTLY_ONCE, ROUNDS, LeaseRig
from rig import long
from traffic import Feed, Record, Watch
from wasmline.kafka import KafkaConfig
from wasmline.local import LocalKafka
from wasmline.testing.kafka import RunningKafka

RATE = 300
"""Records that are written in a second, whatever happens."""

KEYS = 40

ENOUGH = 100
"""Outputs that show that work goes on."""

Tell = Callable[[list[float]], None]


class Stalls:
    """How long a read_committed reader of a job's outputs saw nothing, by what was done to the brokers."""

    def __init__(self, rig: LeaseRig) -> None:
        self.seconds: list[float] = []
        self.rig = rig
        self._came: list[float] = []

    def seen(self, _: Any, now: float) -> None:
        self._came.append(now)

    def after(self, fault: Callable[[], object]) -> None:
        """Do something to the brokers, and see outputs of what was written since then."""
        began = time.time()
        fault()
        self.go_on()
        times = [began, *(each for each in list(self._came) if each > began)]
        self.seconds.append(max(after - before for before, after in pairwise(times)))

    def go_on(self) -> None:
        done = len(self.rig.written)
        self.rig.until(lambda: len(self._came) > done + ENOUGH, "outputs of what was written just now")


@contextmanager
def at_work(kafka: RunningKafka, folder: Path) -> Iterator[Stalls]:
    """Let a job work on a stream of records; at the end, see the output of every record."""

    def record(number: int) -> Record:
        return b"key-%d" % (number % KEYS), b"value"

    def written(_: int, message: Any) -> None:
        rig.written[message.partition(), message.offset()] = message.key()

    with LeaseRig(kafka.config, folder, **EXACTLY_ONCE) as rig, rig.letting(rig.lessor(slots=1)):
        stalls = Stalls(rig)
        with Watch(kafka.config, [rig.output], stalls.seen):
            with Feed(kafka.config, rig.topic, RATE, record, written):
                stalls.go_on()
                yield stalls
            rig.finish()


@pytest.fixture
def tell(record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]) -> Tell:
    def told(seconds: list[float]) -> None:
        text = ", ".join(f"{each:.1f}" for each in seconds)
        record_property("seconds without an output", text)
        with capsys.disabled():
            sys.stdout.write(f" seconds without an output: {text} ")

    return told


@pytest.fixture
def single(tmp_path: Path) -> Iterator[RunningKafka]:
    """One node of its own: the other tests need theirs."""
    with LocalKafka(tmp_path / "kafka") as local:
        yield RunningKafka(local=local, config=KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))


@long
def test_the_only_broker_is_restarted(single: RunningKafka, tmp_path: Path, tell: Tell) -> None:
    def restart(stop: Callable[[int], None]) -> None:
        stop(1)
        single.local.start_node(1)

    with at_work(single, tmp_path) as stalls:
        for stop in ([single.local.kill_node, single.local.stop_node] * ROUNDS)[:ROUNDS]:
            stalls.after(partial(restart, stop))
    tell(stalls.seconds)


@long
def test_one_of_three_brokers_is_killed_and_comes_back(
    kafka_cluster: Callable[[], RunningKafka], tmp_path: Path, tell: Tell
) -> None:
    cluster = kafka_cluster()
    client = AdminClient(cluster.config.client())
    with at_work(cluster, tmp_path) as stalls:
        for number in range(ROUNDS):
            node = 1 + number % 3
            stalls.after(partial(cluster.local.kill_node, node))
            cluster.local.start_node(node)
            stalls.rig.until(partial(_in_sync, client), "all replicas")
    tell(stalls.seconds)


def _in_sync(client: AdminClient) -> bool:
    """Say whether every partition has all its replicas: only then can it do without any one of them."""
    try:
        topics = client.list_topics(timeout=10).topics.values()
    except KafkaException:
        return False  # it asked the broker that had only just gone, or come back
    return all(len(each.isrs) == len(each.replicas) for topic in topics for each in topic.partitions.values())

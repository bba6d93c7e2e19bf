"""Brokers go and come back under leases: each record's output is there once, in the order of its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lease_rig import EXACTLY_ONCE, ROUNDS, LeaseRig
from rig import long
from wasmline.kafka import KafkaConfig
from wasmline.local import LocalKafka
from wasmline.testing.kafka import RunningKafka


@pytest.fixture
def single(tmp_path: Path) -> Iterator[RunningKafka]:
    """One node of its own: the other tests need theirs."""
    with LocalKafka(tmp_path / "kafka") as local:
        yield RunningKafka(local=local, config=KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))


@long
def test_the_only_broker_is_restarted(single: RunningKafka, tmp_path: Path) -> None:
    with LeaseRig(single.config, tmp_path, **EXACTLY_ONCE) as rig, rig.letting(rig.lessor(slots=1)):
        for stop in ([single.local.kill_node, single.local.stop_node] * ROUNDS)[:ROUNDS]:
            rig.feed(1_000)
            rig.until(lambda: rig.seen() > len(rig.written) - 900, "work under way")
            stop(1)
            single.local.start_node(1)
            rig.feed(500)
        rig.finish()


@long
def test_one_of_three_brokers_is_killed_and_comes_back(
    kafka_cluster: Callable[[], RunningKafka], tmp_path: Path
) -> None:
    cluster = kafka_cluster()
    with LeaseRig(cluster.config, tmp_path, **EXACTLY_ONCE) as rig, rig.letting(rig.lessor(slots=1)):
        for number in range(ROUNDS):
            rig.feed(1_000)
            rig.until(lambda: rig.seen() > len(rig.written) - 900, "work under way")
            node = cluster.local.running()[number % len(cluster.local.running())]
            cluster.local.kill_node(node)
            rig.feed(500)
            rig.until(lambda: rig.seen() > len(rig.written) - 200, "work without it")
            cluster.local.start_node(node)
        rig.finish()

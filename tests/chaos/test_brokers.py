"""Brokers go and come back: nothing is lost, and only what was finished about then may run twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig import EXACTLY_ONCE, ROUNDS, Rig, long
from wasmline.kafka import KafkaConfig
from wasmline.local import LocalKafka
from wasmline.testing.kafka import RunningKafka


@pytest.fixture(scope="module")
def cluster(kafka_cluster: Callable[[], RunningKafka]) -> RunningKafka:
    return kafka_cluster()


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="at least once", marks=long), pytest.param(EXACTLY_ONCE, id="transactions")]
)
def test_one_of_three_brokers_is_killed_and_comes_back(
    cluster: RunningKafka, tmp_path: Path, options: dict[str, object]
) -> None:
    with Rig(cluster, tmp_path, options=options, sleep_ms=20, writes=True) as rig:
        rig.join(), rig.join()
        for stop in ([cluster.local.kill_node, cluster.local.stop_node] * ROUNDS)[:ROUNDS]:
            rig.feed(1_000)
            rig.wait(200)
            node = rig.random.choice(cluster.local.running())
            rig.ledger.cut_off()
            stop(node)
            rig.feed(500)
            rig.wait(500)
            cluster.local.start_node(node)
            rig.wait(1_500)
            rig.ledger.back()
        rig.finish()
        if "delivery" in options:
            assert rig.outputs() == rig.expected()


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """One node of its own: the other tests need theirs."""
    with LocalKafka(tmp_path_factory.mktemp("single")) as local:
        yield RunningKafka(local=local, config=KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="at least once"), pytest.param(EXACTLY_ONCE, id="transactions", marks=long)]
)
def test_the_only_broker_is_restarted(single: RunningKafka, tmp_path: Path, options: dict[str, object]) -> None:
    with Rig(single, tmp_path, options=options, sleep_ms=20, writes=True) as rig:
        rig.join(), rig.join()
        for stop in ([single.local.kill_node, single.local.stop_node] * ROUNDS)[:ROUNDS]:
            rig.feed(1_000)
            rig.wait(200)
            rig.ledger.cut_off()
            stop(1)
            single.local.start_node(1)
            rig.wait(1_000)
            rig.ledger.back()
        rig.finish()
        if "delivery" in options:
            assert rig.outputs() == rig.expected()

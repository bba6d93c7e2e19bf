"""A supervised stream outlives whatever is killed, of its own parts and of Airflow's."""

from __future__ import annotations

import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.rounds import ROUNDS, resumed_after, rounds
from support.supervision.supervised_streams import SupervisedStreams, has_pid_namespaces, supervised_streams
from wasmline.testing.kafka import RunningKafka

LONG = "WASMLINE_LONG" in os.environ

KILLS = 5 * ROUNDS

PARTS_LIMIT_S = 60.0
"""Seconds from the death of a driver, an executor or a Spark worker until the streams are at work again."""

AIRFLOW_LIMIT_S = 180.0
"""Seconds from the return of a component of Airflow, or of a pod, until then."""

Fault = tuple[float, Callable[[SupervisedStreams], float]]

FAULTS: dict[str, Fault] = {
    "driver": (PARTS_LIMIT_S, SupervisedStreams.kill_driver),
    "executor": (PARTS_LIMIT_S, SupervisedStreams.kill_executor),
    "Spark worker": (PARTS_LIMIT_S, SupervisedStreams.kill_spark_worker),
    "Airflow worker": (AIRFLOW_LIMIT_S, SupervisedStreams.kill_airflow_worker),
    "triggerer": (AIRFLOW_LIMIT_S, lambda streams: streams.kill_component("triggerer")),
    "scheduler": (AIRFLOW_LIMIT_S, lambda streams: streams.kill_component("scheduler")),
    "API server": (AIRFLOW_LIMIT_S, lambda streams: streams.kill_component("api-server")),
    "pod": (AIRFLOW_LIMIT_S, SupervisedStreams.kill_pod),
}


def plan(seed: int, kinds: list[str], count: int) -> Iterator[str]:
    """Yield so many kinds at random, each about as often as any other."""
    order, bag = random.Random(seed), list[str]()
    for _ in range(count):
        if not bag:
            bag = order.sample(kinds, len(kinds))
        yield bag.pop()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("pod", [pytest.param(True, marks=pytest.mark.long), False], ids=["pod", "worker"])
def test_a_stream_is_at_work_again_whatever_was_killed(
    kafka: RunningKafka, tmp_path: Path, pod: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if pod and not has_pid_namespaces():
        pytest.skip("needs unshare and the right to make a pid namespace")
    if LONG and not pod:
        pytest.skip("a part of the long form")
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1 << 32))
    kinds = [*plan(seed, list(FAULTS), KILLS)] if pod else ["driver", "scheduler"]
    seconds: dict[str, list[float]] = defaultdict(list)
    slow: list[str] = []
    with supervised_streams(kafka, tmp_path, pod=pod, seed=seed) as streams:
        for number in rounds(len(kinds)):
            kind = kinds[number]
            limit, fault = FAULTS[kind]
            took = streams.await_outputs(fault(streams))
            seconds[kind].append(took)
            resumed_after(took)
            if took > limit:
                slow.append(f"{kind}, kill {number}: {took:.0f} s")
            with capsys.disabled():
                sys.stdout.write(f"\n{number} {kind}: {took:.1f} s ")
                sys.stdout.flush()
        failed = [run for run, state in streams.dag_runs() if state == "failed"]
    assert streams.ledger.check_producers(kafka.local.folder / "node-1" / "data") > 0
    assert (streams.ledger.violations, failed, slow) == ([], [], []), f"seed {seed}, {dict(seconds)}"

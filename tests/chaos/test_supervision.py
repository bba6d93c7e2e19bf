"""A supervised stream outlives whatever is killed, of its own parts and of Airflow's."""

from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.machine_stalls import MachineStalls
from support.rounds import ROUNDS, resumed_after, rounds
from support.supervision.processes import has_pid_namespaces
from support.supervision.supervised_streams import SupervisedStreams, supervised_streams
from wasmline.testing.kafka import RunningKafka

KILLS = 5 * ROUNDS

PARTS_LIMIT_S = 60.0
"""Seconds from the death of a driver, an executor or a Spark worker until the streams are at work again."""

MACHINE_LIMIT_S = 120.0
"""The same from the death of a driver with its supervisor: half a minute goes by without a heartbeat before."""

AIRFLOW_LIMIT_S = 180.0
"""Seconds from the return of a component of Airflow, or of a pod, until then."""

SHORT_FORM_RUNS_S = 45.0
"""Seconds for which the short form waits for the runs of the DAG that are active at its end."""

Fault = tuple[float, Callable[[SupervisedStreams], float]]

FAULTS: dict[str, Fault] = {
    "driver": (PARTS_LIMIT_S, SupervisedStreams.kill_driver),
    "driver with its supervisor": (MACHINE_LIMIT_S, SupervisedStreams.kill_machine),
    "frozen driver": (AIRFLOW_LIMIT_S, SupervisedStreams.freeze_driver),
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


@pytest.mark.never_rerun
@pytest.mark.parametrize(
    "pod", [pytest.param(True, id="pod", marks=pytest.mark.long), pytest.param(False, id="worker")]
)
def test_a_stream_is_at_work_again_whatever_was_killed(
    kafka: RunningKafka, tmp_path: Path, pod: bool, capsys: pytest.CaptureFixture[str], machine_stalls: MachineStalls
) -> None:
    assert not pod or has_pid_namespaces(), "needs unshare and the right to make a pid namespace"
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1 << 32))
    kinds = [*plan(seed, list(FAULTS), KILLS)] if pod else ["frozen driver"]
    slow: list[str] = []
    excused = 0
    with supervised_streams(kafka, tmp_path, pod=pod, seed=seed) as streams:
        for number in rounds(len(kinds)):
            kind = kinds[number]
            limit, fault = FAULTS[kind]
            limit = limit if pod else AIRFLOW_LIMIT_S  # the short form runs beside other tests
            machine_stalls.begin()
            seconds = streams.await_outputs(fault(streams))
            resumed_after(seconds)
            if seconds > limit and machine_stalls:
                excused += 1
            elif seconds > limit and pod:  # the short form runs beside other tests, and has their time-out
                slow.append(f"{kind}, kill {number}: {seconds:.0f} s")
            with capsys.disabled():
                stood_still = ", the machine stood still" if machine_stalls else ""
                sys.stdout.write(f"\n{number} {kind}: {seconds:.1f} s{stood_still} ")
                sys.stdout.flush()
        streams.await_runs(math.inf if pod else SHORT_FORM_RUNS_S)  # a task that was killed fails later
        failed = [run for run, state in streams.dag_runs() if state == "failed"]
    commits = streams.ledger.check_commits()
    producers = streams.ledger.check_producers(kafka.local.folder / "node-1" / "data")
    assert commits[streams.worker_job] > 0
    assert all(producers.values())
    assert excused <= max(1, len(kinds) // 10), "the machine stands still too often to judge"
    assert (streams.ledger.violations, failed, slow) == ([], [], []), f"seed {seed}"

"""Histories for as long as one likes: ``simulate.py --minutes 60``; ``--seed 7`` does again what was found with it.

A seed stands for a few histories. One that fails is named, with what failed; done again by itself it is printed as a
program of the shortest history that fails like it, which takes minutes.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import sys
import time
import traceback
from pathlib import Path

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.test_jobs import Jobs
from support.simulation.history import COUNTS
from support.simulation.world import install

HISTORIES = 25
"""Histories of one seed, besides those that the generator cuts short: they are checked like others."""

TRACED = 6
"""Histories that are run to see whether they replay."""


def fails(number: int, *, shrinks: bool, histories: int = HISTORIES, traces: list[int] | None = None) -> bool:
    """Run the histories of a seed, and print what fails; ``traces`` gets a digest of each history."""

    def teardown(jobs: Jobs) -> None:
        try:
            Jobs.teardown(jobs)
        finally:
            if traces is not None and hasattr(jobs, "history"):
                traces.append(jobs.history.trace)

    machine = seed(number)(type("Jobs", (Jobs,), {"teardown": teardown}))
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    chosen = settings(Jobs.TestCase.settings, max_examples=histories, derandomize=False, phases=phases)
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Exception:
        traceback.print_exc()
        print(f"make simulate SEED={number} does this again", flush=True)  # noqa: T201
        return True
    return False


def main() -> int:
    """Simulate, and return 1 where something failed."""
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--trace", type=int, help="print a digest of a few histories of this seed")
    parser.add_argument("--first", type=int, default=1, help="the first of the seeds")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    install(pytest.MonkeyPatch())
    gc.freeze()  # what is there by now outlives the histories
    if arguments.trace is not None:
        traces: list[int] = []
        is_failed = fails(arguments.trace, shrinks=False, histories=TRACED, traces=traces)
        print(len(traces), f"{hash(tuple(traces)) % 2**64:016x}")  # noqa: T201
        return int(is_failed)
    if arguments.seed is not None:
        return int(fails(arguments.seed, shrinks=True))
    until, failed, number = time.monotonic() + 60 * arguments.minutes, 0, 0
    for number in itertools.count(arguments.first):
        if time.monotonic() >= until:
            break
        failed += fails(number, shrinks=False)
    for what, count in sorted(COUNTS.items()):
        print(f"{count:9,} {what}")  # noqa: T201
    print(f"{number - arguments.first} seeds; {failed} seeds failed")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

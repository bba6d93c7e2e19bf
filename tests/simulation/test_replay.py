"""A seed stands for the same histories, step by step, whatever process runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.simulate import fails
from support.simulation.bound_code import bound  # noqa: F401 - every test of this module uses it
from support.simulation.history import INPUT, History, Run, Violation

SIMULATE = Path(__file__).with_name("simulate.py")


def test_a_seed_does_again_what_it_did_whatever_order_its_sets_have() -> None:
    traces = {
        subprocess.run(
            [sys.executable, SIMULATE, "--trace", "7"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for order in ("1", "2")
    }
    assert len(traces) == 1


def test_a_seed_that_fails_is_printed_as_its_shortest_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fault that is planted: a run crashes, and there are records, which one step can do."""

    def crash(history: History, _: Run) -> None:
        if history.cluster.records(INPUT):
            raise Violation("planted")

    monkeypatch.setattr(History, "crash", crash)
    assert fails(1, shrinks=True)
    told = capsys.readouterr()
    assert re.findall(r"^state\.(\w+)\(", told.err, re.MULTILINE) == ["begin", "holds", "start_and_fail", "teardown"]
    assert "planted" in told.err
    assert "SEED=1" in told.out

"""Counts the rounds that scenarios went through, for what a long run says at its end."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast

import pytest

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
"""How often each scenario repeats what it does to the members, the tasks or the brokers."""


BROKER_RESUME_LIMIT_S = 20.0
"""Seconds within which work goes on after a broker has gone or come back; held in long runs, which are alone."""


@dataclass(slots=True)
class Scenario:
    """What one scenario went through: ``slowest`` in seconds, negative where nothing stood still."""

    finished: int = 0
    slowest: float = -1.0
    stops: int = 0


_PROPERTY = "rounds"

_scenarios: dict[str, Scenario] = defaultdict(Scenario)
"""The scenarios of this process, by test, until they are passed on."""

_collected: dict[str, Scenario] = {}
"""The scenarios of all processes, by test."""


def rounds(count: int = ROUNDS) -> Iterator[int]:
    """Yield the numbers of the rounds, from 0; each counts once its body is through."""
    scenario = _scenario()
    for number in range(count):
        yield number
        scenario.finished += 1


@contextmanager
def resuming(limit: float | None = None) -> Iterator[None]:
    """Take the time until work goes on, as ``resumed_after`` does."""
    began = time.monotonic()
    yield
    resumed_after(time.monotonic() - began, limit)


def resumed_after(seconds: float, limit: float | None = None) -> None:
    """Take note of how long work stood still; in several rounds, see that this is within ``limit`` seconds."""
    scenario = _scenario()
    scenario.slowest = max(scenario.slowest, seconds)
    assert limit is None or ROUNDS == 1 or seconds <= limit, f"work stood still for {seconds:.1f} s"


def stopped_for_operator() -> None:
    """Take note that work stopped with HangingTransaction, and that an operator had to decide."""
    _scenario().stops += 1


def pass_on(report: pytest.TestReport) -> None:
    """Add what the test's scenario went through to its report, which reaches the process that prints the summary."""
    if report.when == "teardown" and (scenario := _scenarios.pop(report.nodeid, None)):
        report.user_properties.append((_PROPERTY, asdict(scenario)))


def collect(report: pytest.TestReport) -> None:
    """Take note of the scenario in a report."""
    for name, scenario in report.user_properties:
        if name == _PROPERTY:
            _collected[report.nodeid] = Scenario(**cast(dict[str, Any], scenario))


def summary() -> Iterator[str]:
    """Yield a line for each scenario: its rounds, and the longest time until it was at work again."""
    for name, scenario in _collected.items():
        slowest = f", at work again after {scenario.slowest:.1f} s at most" if scenario.slowest >= 0 else ""
        stops = f", stopped for an operator {scenario.stops} times" if scenario.stops else ""
        yield f"{scenario.finished} rounds of {name}{slowest}{stops}"
    yield f"{sum(each.finished for each in _collected.values())} rounds of {len(_collected)} scenarios"


def _scenario() -> Scenario:
    """Return the scenario of the test that runs."""
    return _scenarios[os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]]

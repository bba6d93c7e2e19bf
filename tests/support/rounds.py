"""Counts the rounds that scenarios went through, for what a long run says at its end."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
"""How often each scenario repeats what it does to the members, the tasks or the brokers."""

_finished: Counter[str] = Counter()
_slowest: dict[str, float] = defaultdict(float)
_stops: Counter[str] = Counter()


def rounds(count: int = ROUNDS) -> Iterator[int]:
    """Yield the numbers of the rounds, from 0; each counts once its body is through."""
    scenario = _scenario()
    for number in range(count):
        yield number
        _finished[scenario] += 1


@contextmanager
def resuming() -> Iterator[None]:
    """Take the time until work goes on."""
    began = time.monotonic()
    yield
    resumed_after(time.monotonic() - began)


def resumed_after(seconds: float) -> None:
    """Take note of how long work stood still."""
    scenario = _scenario()
    _slowest[scenario] = max(_slowest[scenario], seconds)


def stopped_for_operator() -> None:
    """Take note that work stopped with HangingTransaction, and that an operator had to decide."""
    _stops[_scenario()] += 1


def summary() -> Iterator[str]:
    """Yield a line for each scenario: its rounds, and the longest time until it was at work again."""
    for scenario, count in _finished.items():
        slowest = f", at work again after {_slowest[scenario]:.1f} s at most" if scenario in _slowest else ""
        stops = f", stopped for an operator {_stops[scenario]} times" if scenario in _stops else ""
        yield f"{count} rounds of {scenario}{slowest}{stops}"
    yield f"{_finished.total()} rounds of {len(_finished)} scenarios"


def _scenario() -> str:
    """Return the test that runs."""
    return os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]

"""The offsets of the lease source, as each release of Spark asks for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from wasmline.documents import plain
from wasmline.kafka.config import VARIABLE
from wasmline.leases.lease_planner import LeaseRound, PlannerConfig
from wasmline.spark.parallel.lease_source import PLANNER_CONFIG, TRANSFORM, LeaseReader


class Planner:
    """Plans a round whenever there is one to plan."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def next(self, last: LeaseRound) -> LeaseRound:
        if not self.rounds:
            return last
        self.rounds -= 1
        return replace(last, epoch=last.epoch + 1)


def reader(rounds: int, *, epoch: int = 0) -> Any:
    planned = PlannerConfig(job="j", run="r", driver="d", checkpoint="c", topic="t", slots=1, epoch=epoch)
    made: Any = LeaseReader({PLANNER_CONFIG: json.dumps(plain(planned)), TRANSFORM: ""})
    made._opened = Planner(rounds)
    return made


def test_spark_4_2_names_the_round_that_the_next_one_follows() -> None:
    made = reader(2)
    first = made.latestOffset(made.initialOffset(), None)
    assert first["epoch"] == 1
    assert made.latestOffset(first, None)["epoch"] == 2
    assert made.latestOffset({**first, "epoch": 7}, None)["epoch"] == 7


def test_before_spark_4_2_a_round_follows_the_one_that_was_planned_last() -> None:
    made = reader(2)
    assert made.initialOffset()["epoch"] == 0
    assert [made.latestOffset()["epoch"] for _ in range(4)] == [1, 2, 2, 2]


def test_before_spark_4_2_the_first_round_of_a_driver_follows_the_jobs_newest() -> None:
    made = reader(1, epoch=41)
    assert [made.latestOffset()["epoch"] for _ in range(2)] == [42, 42]


def test_before_spark_4_2_a_round_follows_the_checkpoint_s_last_one_that_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, '{"bootstrap.servers": "b:1"}')
    made = reader(1)
    made._opened.leases = lambda planned_round: []
    last = plain(LeaseRound(epoch=41, progress={0: 5}))
    assert made.partitions(made.initialOffset(), last) == []
    assert made.latestOffset() == {**last, "epoch": 42}


def test_a_reader_is_pickled_without_its_state() -> None:
    made = reader(1)
    made.latestOffset()
    assert made.__getstate__() == {"_options": made._options, "_opened": None, "_last": None}

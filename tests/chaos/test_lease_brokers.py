"""Brokers go and come back under leases: each record's output is there, in the order of its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.chaos.consumer_group import ENDS
from support.chaos.outages import OutageTimer, at_work, in_sync
from support.leases.lease_harness import EXACTLY_ONCE, LeaseHarness
from support.rounds import BROKER_RESUME_LIMIT_S, rounds
from wasmline.local import LocalKafka
from wasmline.testing.kafka import RunningKafka

AT_LEAST_ONCE = {"commit_interval_ms": 50}


@contextmanager
def job_at_work(kafka: RunningKafka, folder: Path, options: dict[str, Any]) -> Iterator[OutageTimer]:
    with (
        LeaseHarness(kafka.config, folder, **options) as harness,
        harness.letting(slots=1),
        at_work(harness) as stalls,
    ):
        yield stalls


@pytest.mark.parametrize(
    "options", [pytest.param(AT_LEAST_ONCE, id="at least once"), pytest.param(EXACTLY_ONCE, id="exactly once")]
)
def test_the_only_broker_is_restarted(
    stoppable_kafka: RunningKafka, tmp_path: Path, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def restart(stop: Callable[[LocalKafka, int], None]) -> None:
        stop(stoppable_kafka.local, 1)
        stoppable_kafka.local.start_node(1)

    with job_at_work(stoppable_kafka, tmp_path, options) as stalls:
        for number in rounds():
            stalls.after(partial(restart, ENDS[number % 2]), BROKER_RESUME_LIMIT_S)
    stalls.tell(capsys)


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [pytest.param(AT_LEAST_ONCE, id="at least once"), pytest.param(EXACTLY_ONCE, id="exactly once")]
)
def test_one_of_three_brokers_is_killed_and_comes_back(
    kafka_cluster: Callable[[], RunningKafka],
    tmp_path: Path,
    options: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = kafka_cluster()
    client = AdminClient(cluster.config.client())
    with job_at_work(cluster, tmp_path, options) as stalls:
        for number in rounds():
            node = 1 + number % 3
            stalls.after(partial(cluster.local.kill_node, node), BROKER_RESUME_LIMIT_S)
            cluster.local.start_node(node)
            stalls.harness.until(partial(in_sync, client), "all replicas")
    stalls.tell(capsys)

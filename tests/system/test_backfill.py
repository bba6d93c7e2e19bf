"""A backfill of ten days, as the DAG's docstring orders it, on a real Airflow: make backfill."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import demo_settings
from delivery.generator import generate
from delivery.reference_transform import transform
from wasmline.kafka import Topics, produce_all
from wasmline.local.process import wait_until
from wasmline.offset_ranges import count_offsets
from wasmline.testing.kafka import RunningKafka
from wasmline.training import RecordedSlice, SliceLog

RETRAIN = "retrain_delivery_eta"

FEATURES = demo_settings.FEATURES

DAYS = 10

HOUR_MS, DAY_MS = 3_600_000, 86_400_000

FIRST_NIGHT_MS = 1_767_232_800_000
"""2026-01-01 03:00 in Berlin, where the first interval begins."""


def produce_deliveries(kafka: RunningKafka, days: float, *, start_ms: int, seed: int) -> None:
    """Write features of deliveries, about one a minute, at their own times."""
    made = generate(int(days * DAY_MS / 60_000), seed=seed, start_ms=start_ms)
    features = ((transform(each.value), each.timestamp_ms) for each in made)
    records = ((None, value, None, time_ms) for value, time_ms in features if isinstance(value, bytes))
    produce_all(kafka.config, FEATURES, records)


def pause(airflow: Any, dag: str, *, paused: bool) -> None:
    airflow.api.request("PATCH", f"/dags/{dag}", {"is_paused": paused})


def order_backfill(airflow: Any) -> None:
    """Run the command of the DAG's docstring while the services are stopped: on SQLite, a scheduler ends by it."""
    documented = airflow.api.get(f"/dags/{RETRAIN}/details")["doc_md"]
    (command,) = re.findall(r"`airflow (backfill create [^`]*)`", documented)
    airflow.local.stop()
    environment = airflow.local.environment()
    subprocess.run([sys.executable, "-m", "airflow", *command.split()], env=environment, check=True)
    airflow.local.start()


def runs_of(airflow: Any, kind: str) -> list[dict[str, Any]]:
    """Return the runs of a kind, by their intervals."""
    runs = airflow.api.get(f"/dags/{RETRAIN}/dagRuns?limit=100")["dag_runs"]
    return sorted((run for run in runs if run["run_type"] == kind), key=lambda run: str(run["data_interval_start"]))


def boundaries(slices: list[RecordedSlice], partition: str) -> Iterator[tuple[int, int]]:
    """Return where each slice begins and ends in a partition."""
    for each in slices:
        start, end = each.offsets[partition]
        yield start, end


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_backfill_of_ten_days_has_a_slice_for_each_day_and_these_touch(airflow: Any, kafka: RunningKafka) -> None:
    topics = Topics(kafka.config)
    for name in (FEATURES, demo_settings.PREDICTIONS, demo_settings.UNPREDICTED):
        topics.create(name, 2)
    produce_deliveries(kafka, 2, start_ms=FIRST_NIGHT_MS - 3 * DAY_MS, seed=1)
    pause(airflow, "watched_topics", paused=True)
    pause(airflow, RETRAIN, paused=False)
    assert wait_until(lambda: bool(runs_of(airflow, "scheduled")), 120)
    airflow.wait(RETRAIN, runs_of(airflow, "scheduled")[0]["dag_run_id"], timeout=600)
    log = SliceLog(str(Path(airflow.home, "models")))
    (first,) = log.history("delivery-eta")
    produce_deliveries(kafka, DAYS + 1, start_ms=FIRST_NIGHT_MS - 12 * HOUR_MS, seed=2)

    pause(airflow, RETRAIN, paused=True)  # or tasks would start before the API server does
    order_backfill(airflow)
    airflow = replace(airflow, api=airflow.local.api)
    pause(airflow, RETRAIN, paused=False)
    runs = runs_of(airflow, "backfill")
    assert len(runs) == DAYS
    train = f"/dags/{RETRAIN}/dagRuns/{runs[0]['dag_run_id']}/taskInstances/train"
    assert wait_until(lambda: bool(airflow.api.get(train)["triggerer_job"]), 120)
    beside = airflow.api.trigger(RETRAIN, {"since_time": "2100-01-01T00:00:00Z"})  # nothing is new since then
    for run in runs:
        airflow.wait(RETRAIN, run["dag_run_id"], timeout=1_200)
    airflow.wait(RETRAIN, beside, timeout=3_600)
    (waited,) = [task for task in airflow.api.tasks(RETRAIN, beside) if task.task == "train"]
    assert (waited.state, waited.tries > 1) == ("skipped", True)

    _, *days = log.history("delivery-eta")
    assert [each.request.run for each in days] == [f"{RETRAIN}/{run['dag_run_id']}" for run in runs]
    for partition, end in topics.end_offsets(FEATURES).items():
        found = list(boundaries(days, str(partition)))
        assert first.offsets[str(partition)][1] < found[0][0], "the first day begins at 03:00, and others were before"
        assert all(end_of_day == start for (_, end_of_day), (start, _) in pairwise(found))
        assert found[-1][1] < end, "the last day ends at 03:00, and others are after"
    assert all(abs(count_offsets(each.offsets) - 1_440) < 100 for each in days)

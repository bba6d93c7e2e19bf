"""The main job, end to end, on real parts: REST, scheduler, executor, triggerer, Kafka, the C++ toolchain and Spark."""

from pathlib import Path
from typing import Any

import pytest

from delivery.report import DemoReport
from wasmline.control import JobTopic
from wasmline.documents import decode
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline.training import PromotionLog

ROWS = 6_000


@pytest.fixture(scope="module")
def report(airflow: Any) -> DemoReport:
    """The report of one run of the pipeline."""
    airflow.run("delivery_pipeline", rows=ROWS, report=str(airflow.home))
    return decode(DemoReport, Path(airflow.home, "report.json").read_bytes())


@pytest.mark.timeout(900)
def test_every_record_is_a_feature_or_a_dead_letter_with_its_reason(report: DemoReport) -> None:
    accounting = report.accounting
    assert accounting.records_in == ROWS
    assert accounting.features + accounting.dead_letters == ROWS
    assert accounting.duplicates == 0
    assert 0 < accounting.dead_letters < ROWS / 20
    assert sum(accounting.reasons.values()) == accounting.dead_letters
    assert accounting.largest_deviation < 1e-9
    assert sum(batch.records for batch in report.stream.batches) == ROWS
    assert report.stream.partitions == 3


def test_the_model_beats_the_mean_and_names_the_exact_records_it_saw(report: DemoReport) -> None:
    training = report.training
    assert training.metrics.rmse < training.metrics.mean_rmse
    assert training.dataset.offset_count == report.accounting.features
    module = report.module
    written = f"{module.name}@{module.version} {module.digest.removeprefix('sha256:')[:12]}"
    assert training.dataset.modules == (written,)
    assert training.rows.transforms == {written: report.accounting.features - training.rows.excluded}


def test_each_feature_has_one_prediction_of_the_champion_which_is_xgboosts_to_the_bit(report: DemoReport) -> None:
    serving, training = report.serving, report.training
    assert serving.served.model == f"{training.model}@{training.version}"
    assert serving.served.predictions == report.accounting.features
    assert serving.served.held_out == training.rows.holdout
    assert serving.served.rmse == pytest.approx(training.metrics.rmse, rel=1e-9)
    origin = "\n".join(serving.explained)
    for fact in (
        training.digest,
        training.dataset_digest,
        serving.module.digest,
        report.module.digest,
        "deliveries.raw-",
    ):
        assert fact in origin


def test_without_the_broken_rows_the_distance_signal_is_back(report: DemoReport) -> None:
    raw, clean = (
        {one.feature: one.pearson or 0.0 for one in side}["distance_km"]
        for side in (report.signals.raw, report.signals.clean)
    )
    assert clean > 0.2
    assert clean > raw + 0.1


def test_the_report_is_a_page_of_its_own(report: DemoReport, airflow: Any) -> None:
    page = Path(airflow.home, "report.html").read_text()
    assert report.module.digest.removeprefix("sha256:")[:12] in page
    assert "<script src" not in page
    assert set(report.steps) >= {
        "build",
        "test",
        "publish",
        "deploy",
        "stream",
        "verify",
        "train",
        "promote",
        "compile_model",
        "predict",
    }


def test_progress_and_no_secret_is_in_the_streams_log(report: DemoReport, airflow: Any) -> None:
    (stream,) = [task for task in airflow.api.tasks("delivery_pipeline", report.run) if task.task == "stream"]
    lines = airflow.api.log("delivery_pipeline", report.run, stream)
    assert any(f"{ROWS:,} records in" in line for line in lines)


def test_training_again_keeps_the_live_model_or_promotes_a_better_one_and_says_why(
    report: DemoReport, airflow: Any
) -> None:
    run = airflow.run("retrain_delivery_eta", margin=0.5)
    taken = {task.task: task.state for task in airflow.api.tasks("retrain_delivery_eta", run)}
    assert (taken["kept"], taken["promoted"]) == ("success", "skipped"), "nobody is twice as good on the same records"
    first, *later = PromotionLog(str(airflow.home / "models")).history("delivery-eta")
    assert first.decision == "promote"
    job_run = airflow.api.xcom("retrain_delivery_eta", run, "train")["run"]
    (kept,) = [
        one for one in later if one.run == job_run
    ]  # for hours after its time, the schedule adds a run of its own
    assert kept.decision == "keep"
    assert kept.metrics.holdout == kept.champion_metrics.holdout  # type: ignore[union-attr]
    assert kept.live == report.training.version
    assert kept.reason in airflow.api.xcom("retrain_delivery_eta", run, "kept")


def test_a_user_who_fails_a_waiting_task_has_its_run_told_to_stop(
    report: DemoReport, airflow: Any, kafka: RunningKafka
) -> None:
    run = airflow.api.trigger("retrain_delivery_eta", {})
    task = f"/dags/retrain_delivery_eta/dagRuns/{run}/taskInstances/train"
    assert wait_until(lambda: bool(airflow.api.get(task)["triggerer_job"]), 120)
    airflow.api.request("PATCH", task, {"new_state": "failed"})
    jobs = JobTopic(kafka.config)
    try:
        assert wait_until(lambda: jobs.order("delivery-eta-retrain").wanted == "stopped", 60)
    finally:
        jobs.close()
    assert airflow.api.get(task)["state"] == "failed"

"""The main job, end to end, on real parts: REST, scheduler, executor, triggerer, Kafka, the C++ toolchain and Spark."""

from pathlib import Path
from typing import Any

import pytest

from delivery.approval import KEEP, PROMOTE
from delivery.generator import Drift, generate
from delivery.reference_transform import transform
from delivery.report import DemoReport
from wasmline.control import JobTopic
from wasmline.documents import decode
from wasmline.kafka import Topics, produce_all
from wasmline.local.process import wait_until
from wasmline.offset_ranges import union_of
from wasmline.testing.kafka import RunningKafka
from wasmline.training import PromotionLog, SliceLog

ROWS = 6_000

RETRAIN = "retrain_delivery_eta"


@pytest.fixture(scope="module")
def report(airflow: Any) -> DemoReport:
    """The report of one run of the pipeline."""
    airflow.run("delivery_pipeline", rows=ROWS, report=str(airflow.home))
    return decode(DemoReport, Path(airflow.home, "report.json").read_bytes())


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
    links = airflow.api.get(f"/dags/delivery_pipeline/dagRuns/{report.run}/taskInstances/stream/links")["extra_links"]
    assert links["Job status"].endswith("/tasks/stream?try_number=1")
    assert links["Spark UI"] is None, "its driver has ended"


def produce_slower_deliveries(kafka: RunningKafka, rows: int, seed: int) -> None:
    """Write features of deliveries that take longer than those which the champion knows."""
    features = map(transform, (each.value for each in generate(rows, seed=seed, drift=Drift(day=0))))
    records = ((None, each, None, None) for each in features if isinstance(each, bytes))
    produce_all(kafka.config, "deliveries.features", records)


def await_scheduler(airflow: Any) -> None:
    """Wait for two heartbeats: the scheduler fails a task that is answered before it knows that the task waits."""
    beats: set[str] = set()

    def beat() -> bool:
        beats.add(airflow.api.get("/monitor/health")["scheduler"]["latest_scheduler_heartbeat"])
        return len(beats) > 2

    assert wait_until(beat, 60)


def answer(airflow: Any, run: str, option: str) -> dict[str, Any]:
    """Answer the approval of a run once it is asked for, wait for the run's success, and return what was asked."""
    task = f"/dags/{RETRAIN}/dagRuns/{run}/taskInstances/approve"
    assert wait_until(lambda: airflow.api.get(task)["state"] == "awaiting_input", 240)
    await_scheduler(airflow)
    asked: dict[str, Any] = airflow.api.get(f"{task}/-1/hitlDetails")
    airflow.api.request("PATCH", f"{task}/-1/hitlDetails", {"chosen_options": [option], "params_input": {}})
    assert airflow.api.wait(RETRAIN, run, timeout=240) == "success"
    return asked


def ends(airflow: Any, run: str) -> set[str]:
    """Return which of the four ends a run of the retraining took."""
    states = {task.task: task.state for task in airflow.api.tasks(RETRAIN, run)}
    return {name for name in ("promoted", "kept", "refused", "skipped") if states[name] == "success"}


def test_the_timetable_starts_a_run_which_skips_what_a_run_has_trained_on(report: DemoReport, airflow: Any) -> None:
    airflow.api.unpause(RETRAIN)

    def scheduled() -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = airflow.api.get(f"/dags/{RETRAIN}/dagRuns")["dag_runs"]
        return [run for run in runs if run["run_type"] == "scheduled"]

    assert wait_until(lambda: bool(scheduled()), 60)
    (run,) = scheduled()
    assert airflow.api.wait(RETRAIN, run["dag_run_id"], timeout=240) == "success"
    assert ends(airflow, run["dag_run_id"]) == {"skipped"}
    assert airflow.api.xcom(RETRAIN, run["dag_run_id"], "select_slice")["why"].startswith("scheduled: ")
    told = airflow.api.xcom(RETRAIN, run["dag_run_id"], "skipped")
    assert "0 offsets that are new to delivery-eta" in told
    (sliced,) = SliceLog(str(airflow.home / "models")).history("delivery-eta")
    assert sliced.offsets == report.training.dataset.offsets


def test_a_better_model_is_refused_by_a_user_and_goes_live_when_the_user_thinks_again(
    report: DemoReport, airflow: Any, kafka: RunningKafka
) -> None:
    produce_slower_deliveries(kafka, 4_000, seed=11)
    run = airflow.api.trigger(RETRAIN, {"approval": True, "windows": ["all"]})
    asked = answer(airflow, run, KEEP)
    assert f"beside delivery-eta@{report.training.version}: " in asked["body"]
    for row in ("held-out rows", "vehicle=motorcycle", "newest records"):
        assert f"| {row} | " in asked["body"]
    assert ends(airflow, run) == {"refused"}
    decisions = PromotionLog(str(airflow.home / "models"))
    *_, refused = decisions.history("delivery-eta")
    assert (refused.decision, refused.refusal) == ("keep", "user")
    assert refused.reason.startswith("not approved by ")
    assert refused.live == report.training.version

    trained = airflow.api.xcom(RETRAIN, run, "train")
    again = {"dry_run": False, "dag_run_id": run, "task_ids": ["approve"], "include_downstream": True}
    airflow.api.request("POST", f"/dags/{RETRAIN}/clearTaskInstances", {**again, "only_failed": False})
    answer(airflow, run, PROMOTE)
    assert ends(airflow, run) == {"promoted"}
    *_, promoted = decisions.history("delivery-eta")
    assert (promoted.decision, promoted.version) == ("promote", trained["version"])
    assert promoted.by
    assert airflow.api.xcom(RETRAIN, run, "check_serving")["champion"] == f"delivery-eta@{trained['version']}"
    assert airflow.api.xcom(RETRAIN, run, "deploy_model")["version"] == trained["version"]


def test_a_model_that_is_not_better_is_not_promoted_and_says_why(
    report: DemoReport, airflow: Any, kafka: RunningKafka
) -> None:
    produce_slower_deliveries(kafka, 1_000, seed=12)
    run = airflow.run(RETRAIN, margin=0.5)
    assert ends(airflow, run) == {"kept"}
    *_, kept = PromotionLog(str(airflow.home / "models")).history("delivery-eta")
    assert (kept.decision, kept.run) == ("keep", airflow.api.xcom(RETRAIN, run, "train")["run"])
    assert kept.metrics.holdout == kept.champion_metrics.holdout  # type: ignore[union-attr]
    assert kept.live == kept.champion != report.training.version
    assert kept.reason in airflow.api.xcom(RETRAIN, run, "kept")
    slices = SliceLog(str(airflow.home / "models")).history("delivery-eta")
    assert union_of(each.offsets for each in slices) == {
        str(partition): (0, end) for partition, end in Topics(kafka.config).end_offsets("deliveries.features").items()
    }


def test_a_run_that_data_starts_has_the_reasons_and_the_offsets_in_its_events(
    report: DemoReport, airflow: Any, kafka: RunningKafka
) -> None:
    Topics(kafka.config).create("system.progress", 1)

    def payloads() -> list[dict[str, Any]]:
        """Return those of runs that have ended: Airflow cannot show the events of a run that has not started."""
        runs = airflow.api.get("/dags/watched_topics/dagRuns?state=success")["dag_runs"]
        paths = [f"/dags/watched_topics/dagRuns/{run['dag_run_id']}/upstreamAssetEvents" for run in runs]
        return [event["extra"]["payload"] for path in paths for event in airflow.api.get(path)["asset_events"]]

    def grown() -> list[dict[str, Any]]:
        produce_all(kafka.config, "system.progress", [(None, b"x", None, None)] * 10)
        return [each for each in payloads() if each["topic"] == "system.progress"]

    assert wait_until(lambda: bool(grown()), 60)
    progress = grown()[0]
    (start, end) = progress["offsets"]["0"]
    assert (progress["records"], progress["until"]) == (end - start, {"0": end})
    retrains = [each for each in payloads() if each["topic"] == "deliveries.features"]
    assert {each["model"] for each in retrains} == {"delivery-eta"}
    assert all(each["why"].endswith("new records, at least 1,000") for each in retrains)
    (run, *_) = airflow.api.get("/dags/watched_topics/dagRuns?state=success")["dag_runs"]
    assert airflow.api.xcom("watched_topics", run["dag_run_id"], "payloads")[0] in payloads()


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

"""When a model is trained again, on a real broker and a registry on disk."""

import json
import logging
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.eta_model import VEHICLES, eta_model, held_out
from support.gated_models import METRICS as FIRST_ROWS
from support.gated_models import ROWS, gated_record
from wasmline import provenance
from wasmline.clock import now_ms
from wasmline.control import RetrainStatus, RetrainStatusTopic
from wasmline.errors import TopicNotFound
from wasmline.job_specs import SliceRequest
from wasmline.kafka import Topics, produce_all
from wasmline.retrain_conditions import RetrainConditions
from wasmline.testing.kafka import RunningKafka
from wasmline.training import Decision, ModelRegistry, PromotionLog, RetrainMonitor, promote, slice_log
from wasmline.training.run_slice import topic_offsets
from wasmline.training.slice_decision import decide_slice
from wasmline.training.slice_log import SliceLog

METRICS = replace(FIRST_ROWS, rows=len(ROWS))

Rows = list[dict[str, Any]]


class Watched:
    """A model with a champion, its topic and a monitor."""

    def __init__(self, kafka: RunningKafka, models: Path) -> None:
        self.kafka = kafka
        self.models = str(models)
        self.name = f"eta-{uuid.uuid4().hex[:8]}"
        self.spec = RetrainConditions(
            model=self.name, models=self.models, topic=kafka.topic(2), new_records=100, cooldown_seconds=0
        )
        self._monitors: list[RetrainMonitor] = []
        self._predicted = 0

    def promote(self, **changes: Any) -> str:
        record = replace(gated_record(5), **{"model": self.name, "metrics": METRICS, **changes})
        version = ModelRegistry(self.models).publish(record, eta_model(ROWS, record), held_out=held_out(ROWS)).version
        decision, champion = (
            Decision(decision="promote", reason="better"),
            PromotionLog(self.models).champion(self.name),
        )
        promote(self.models, self.name, version, decision, champion=champion, metrics=METRICS)
        return version

    def produce(self, rows: Iterable[dict[str, Any]], topic: str = "", model: str = "") -> None:
        header = f"features 0 1 eta@1.0.0 {'0' * 12} {model} {'0' * 12} {'0' * 12}".encode()
        headers = [(provenance.NAME, header)] if model else None
        records = ((row["id"].encode(), json.dumps(row).encode(), headers, None) for row in rows)
        produce_all(self.kafka.config, topic or self.spec.topic, records)

    def monitor(self, **changes: Any) -> RetrainMonitor:
        self._monitors.append(RetrainMonitor(self.kafka.config, replace(self.spec, **changes)))
        return self._monitors[-1]

    def predict(self, version: str, topic: str, error: float) -> None:
        """Produce records, predictions of a version for them, and labels that differ by an error."""
        rows = features(600, first=self._predicted)
        self._predicted += len(rows)
        self.produce(({"id": row["id"], "prediction": 20.0} for row in rows), topic, f"{self.name}@{version}")
        self.produce({**row, "minutes": 20.0 + error} for row in rows)

    def status(self) -> RetrainStatus:
        """Return the status once the monitors have written what they report."""
        for each in self._monitors:
            assert each._reporter._has_settled(60)
        with closing(RetrainStatusTopic(self.kafka.config, self.name)) as topic:
            found = topic.read()
        assert found is not None
        return found

    def close(self) -> None:
        for each in self._monitors:
            each.close()

    def record_slice(self, run: str) -> None:
        """Record what is new."""
        log, request = SliceLog(self.models), SliceRequest(run=run)
        history = log.history(self.name)
        topic = topic_offsets(Topics(self.kafka.config), self.spec.topic, request)
        new = decide_slice(request, history, topic)
        assert log.append(self.name, len(history), new, request=request, topic=topic)


@pytest.fixture
def watched(kafka: RunningKafka, tmp_path: Path) -> Iterator[Watched]:
    with closing(Watched(kafka, tmp_path)) as made:
        yield made


def features(count: int, *, farther_km: float = 0.0, seed: int = 5, first: int = 0) -> Rows:
    """Rows of the distribution that the model's held-out rows have, or of one farther away."""
    generator = np.random.default_rng(seed)
    return [
        {
            "id": f"d{first + place}",
            "km": None if generator.random() < 0.1 else float(generator.normal(8 + farther_km, 5)),
            "age": None if generator.random() < 0.1 else int(generator.integers(18, 60)),
            "vehicle": None if generator.random() < 0.1 else VEHICLES[generator.integers(3)],
        }
        for place in range(count)
    ]


def test_new_records_are_those_that_no_slice_has_whichever_monitor_looks(watched: Watched) -> None:
    monitor = watched.monitor()
    watched.produce(features(99))
    assert monitor.poll() is None
    watched.produce(features(1))
    event = monitor.poll()
    assert event is not None
    assert (event.why, event.slice, event.champion) == ("100 new records, at least 100", 0, None)
    assert event.until == {str(p): end for p, end in Topics(watched.kafka.config).end_offsets(event.topic).items()}
    assert watched.monitor().poll() is not None
    watched.record_slice("first")
    assert monitor.poll() is None
    watched.produce(features(100))
    for each in (monitor, watched.monitor()):
        later = each.poll()
        assert later is not None
        assert (later.slice, later.reasons[0].figures) == (1, {"records": 100})


def test_a_demand_is_not_repeated_for_some_time_after_it_or_after_a_slice(watched: Watched) -> None:
    monitor = watched.monitor(cooldown_seconds=3_600)
    watched.produce(features(100))
    assert monitor.poll() is not None
    assert monitor.poll() is None
    watched.record_slice("first")
    watched.produce(features(100))
    assert monitor.poll() is None
    assert watched.monitor(cooldown_seconds=3_600).poll() is None


def test_features_that_drift_are_named_beside_the_champions_held_out_rows(watched: Watched) -> None:
    monitor = watched.monitor(new_records=None, max_psi=0.25)
    version = watched.promote()
    watched.produce(features(1_500))
    assert monitor.poll() is None
    watched.record_slice("first")
    watched.produce(features(1_500, farther_km=6.0))
    event = monitor.poll()
    assert event is not None
    (reason,) = event.reasons
    assert (reason.condition, event.champion) == ("drift", version)
    assert reason.text.startswith("the PSI of km is ")
    assert reason.figures["rows"] == 1_500
    assert float(reason.figures["km"]) > 0.25 > 0.1 > max(float(reason.figures[name]) for name in ("age", "vehicle"))


def test_the_live_error_is_that_of_the_champions_predictions_once_labels_are_there(watched: Watched) -> None:
    version = watched.promote(metrics=replace(METRICS, forward_rmse=5.0))
    predictions, labels = watched.kafka.topic(2), watched.kafka.topic()
    changes = {"new_records": None, "max_error_growth": 0.5, "predictions": predictions, "labels": labels}
    monitor = watched.monitor(**changes)
    rows = features(600)
    watched.produce(rows)
    own, foreign = f"{watched.name}@{version}", f"{watched.name}@0.9.0"
    watched.produce(({"id": row["id"], "prediction": 20.0} for row in rows), predictions, own)
    watched.produce(({"id": f"x{row['id']}", "prediction": 500.0} for row in rows), predictions, foreign)
    assert monitor.poll() is None, "no label has arrived"
    watched.produce(({"id": f"x{row['id']}", "minutes": 1.0} for row in rows), labels)
    assert monitor.poll() is None, "those are another model's predictions"
    limit = 5.0 * 1.5
    watched.produce(({"id": row["id"], "minutes": 20.5 + limit} for row in rows[:550]), labels)
    assert watched.monitor(**changes, label_delay_seconds=3_600).poll() is None, "the predictions are too young"
    event = monitor.poll()
    assert event is not None
    (reason,) = event.reasons
    assert reason.condition == "live error"
    assert reason.figures == {"rmse": limit + 0.5, "expected_rmse": 5.0, "rows": 550, "unlabelled": 50}


def test_labels_may_be_in_the_topic_of_the_features_the_first_of_an_identity_counts(watched: Watched) -> None:
    watched.promote()
    predictions = watched.kafka.topic()
    rows = features(600)
    watched.produce(rows)
    watched.produce(({"id": row["id"], "prediction": 20.0} for row in rows), predictions)
    watched.produce({**row, "minutes": 30.0} for row in rows)
    watched.produce({**row, "minutes": 20.0} for row in rows)
    event = watched.monitor(new_records=None, max_error_growth=0.5, predictions=predictions).poll()
    assert event is not None
    assert event.reasons[0].figures["rmse"] == 10.0


def test_a_model_is_trained_again_if_the_last_training_is_long_ago_and_records_are_new(watched: Watched) -> None:
    monitor = watched.monitor(new_records=None, max_age_hours=24)
    watched.promote()
    assert monitor.poll() is None
    watched.produce(features(1))
    event = monitor.poll()
    assert event is not None
    created = 1_767_225_600  # of eta_record
    age_s = int(event.reasons[0].figures["age_s"])
    assert abs(event.observed_ms / 1000 - created - age_s) < 5
    assert watched.monitor(new_records=None, max_age_hours=(time.time() - created) / 3600 + 1).poll() is None
    watched.record_slice("its model is kept")
    watched.produce(features(1))
    assert monitor.poll() is None


def test_a_slice_of_a_clock_that_is_ahead_silences_nothing(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.produce(features(100))
    with monkeypatch.context() as patch:
        patch.setattr(slice_log, "now_ms", lambda: now_ms() + 30 * 86_400_000)
        watched.record_slice("ahead")
    watched.produce(features(100))
    assert watched.monitor(cooldown_seconds=3_600).poll() is not None


def test_what_cannot_be_measured_is_logged_once_and_holds_up_no_other_condition(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.promote()
    watched.produce(features(100))
    monitor = watched.monitor(max_age_hours=1, max_error_growth=0.1, predictions="no-such-topic")
    for _ in range(2):
        event = monitor.poll()
        assert event is not None
        assert [each.condition for each in event.reasons] == ["new records", "age"]
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told.startswith(f"{watched.name}: the live error cannot be measured: TopicNotFound: ")
    assert "no-such-topic" in told


def test_a_champion_that_the_registry_has_lost_holds_up_no_training_on_new_records(watched: Watched) -> None:
    watched.promote()
    shutil.rmtree(Path(watched.models, "models"))
    watched.produce(features(100))
    event = watched.monitor(max_age_hours=1).poll()
    assert event is not None
    assert (event.why, event.champion) == ("100 new records, at least 100", None)


def test_why_a_model_is_not_trained_again_is_logged_once_for_each_change(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = watched.monitor(min_new_records=10, new_records=1_000, max_psi=0.25, max_age_hours=24 * 36_500)
    watched.promote()

    def told() -> list[str]:
        with caplog.at_level(logging.INFO):
            for _ in range(2):
                assert monitor.poll() is None
        found = [each.getMessage() for each in caplog.records if "is not trained again" in each.getMessage()]
        caplog.clear()
        return found

    assert told() == [f"{watched.name} is not trained again: 0 new records, fewer than 10"]
    watched.produce(features(20))
    (line,) = told()
    assert "20 new records, fewer than 1,000; drift needs 500 rows: 20 are new, 1,500 were held out; the last " in line
    watched.produce(features(580))
    (line,) = told()
    assert "600 new records, fewer than 1,000; the PSI of " in line
    watched.produce(features(10))
    assert told() == []


def test_a_topic_that_does_not_exist_is_named(watched: Watched) -> None:
    with pytest.raises(TopicNotFound, match="no-such-topic"):
        watched.monitor(topic="no-such-topic").poll()


def test_the_status_says_what_was_observed_before_a_slice_at_an_event_and_in_the_cooldown(watched: Watched) -> None:
    monitor = watched.monitor(new_records=100, max_age_hours=24 * 36_500, cooldown_seconds=3_600)
    assert monitor.poll() is None
    first = watched.status()
    assert (first.model, first.topic, first.champion, first.new_records) == (watched.name, watched.spec.topic, None, 0)
    assert (first.text, first.live_errors) == ("0 new records, fewer than 1", {})
    version = watched.promote()
    watched.produce(features(100))
    event = monitor.poll()
    assert event is not None
    fired = watched.status()
    assert (fired.observed_ms, fired.champion, fired.new_records) == (event.observed_ms, version, 100)
    assert [(each.condition, each.is_met) for each in fired.checks] == [("new records", True), ("age", False)]
    assert (fired.checks[0].text, fired.expected_rmse) == ("100 new records, at least 100", METRICS.rmse)
    assert fired.age_s == pytest.approx(event.observed_ms / 1000 - 1_767_225_600, abs=5)
    watched.produce(features(7))
    assert monitor.poll() is None
    quiet = watched.status()
    [check] = quiet.checks
    assert (check.condition, check.is_met, quiet.new_records, quiet.champion) == ("cooldown", False, 107, version)
    assert check.text.startswith("waits for the cooldown until ")


def test_live_errors_of_earlier_champions_are_kept_whichever_monitor_writes(watched: Watched) -> None:
    predictions = watched.kafka.topic()
    changes = {"new_records": None, "max_error_growth": 10.0, "predictions": predictions}
    first = watched.promote()
    watched.predict(first, predictions, 3.0)
    measuring = watched.monitor(**changes)
    assert measuring.poll() is None
    measured = watched.status()
    assert (measured.champion, measured.live_rmse, measured.live_errors) == (first, 3.0, {first: 3.0})
    second = watched.promote(training_rows=17)
    assert second != first
    assert watched.monitor(new_records=10_000).poll() is None
    unmeasured = watched.status()
    assert (unmeasured.champion, unmeasured.live_rmse, unmeasured.live_errors) == (second, None, {first: 3.0})
    watched.predict(second, predictions, 5.0)
    assert watched.monitor(**changes).poll() is None
    assert watched.status().live_errors == {first: 3.0, second: 5.0}

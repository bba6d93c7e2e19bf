"""Models on the page: their versions, the decisions on them, how they are served, and what would retrain them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from integration.plugin.conftest import WAIT_S, PageClient
from support.eta_model import eta_record, eta_rows
from support.served_model import ServedModel, small_models
from wasmline.control.retrain_status import RetrainCheck, RetrainStatus, RetrainStatusTopic
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka


@pytest.fixture
def served(kafka: RunningKafka, tmp_path: Path) -> ServedModel:
    """A model of three versions, of which the second is the champion, in the registries of the page."""
    rows = eta_rows()
    served = ServedModel(kafka, tmp_path, small_models(rows, eta_record()), rows)
    served.promote("1.0.0", "1.1.0")
    return served


def watch(kafka: RunningKafka, model: str, **live_errors: float) -> None:
    """Write what a trigger has observed."""
    checks = (RetrainCheck(condition="new_records", text="70 of 100 new records", is_met=False),)
    observed = RetrainStatus(
        model=model, topic="features", champion="1.1.0", new_records=70, checks=checks, expected_rmse=6.0,
        live_rmse=6.5, age_s=60.0, observed_ms=7, live_errors={"1.1.0": 6.5},
    )  # fmt: skip
    with closing(RetrainStatusTopic(kafka.config, model)) as topic:
        topic.write(observed)


def test_a_model_is_shown_with_its_versions_and_what_would_retrain_it(
    kafka: RunningKafka, open_page: Callable[..., PageClient], served: ServedModel
) -> None:
    page = open_page(kafka, "viewer")
    watch(kafka, served.name)
    assert wait_until(lambda: bool(page.get("state")["models"]), WAIT_S)
    assert wait_until(lambda: page.get("state")["models"][0]["trigger"] is not None, WAIT_S)
    [row] = page.get("state")["models"]
    assert (row["model"], row["champion"], row["versions"], row["rmse"]) == (served.name, "1.1.0", 3, 6.0)
    assert row["serving"] not in (None, "agrees")
    assert row["trigger"] == {"state_text": "70 of 100 new records", "observed_ms": 7}
    assert wait_until(lambda: page.get(f"models/{served.name}")["state"] == "ready", WAIT_S)
    found = page.get(f"models/{served.name}")
    assert [(each["version"], each["rmse"], each["live_rmse"]) for each in found["versions"]] == [
        ("1.0.0", 7.0, None),
        ("1.1.0", 6.0, 6.5),
        ("1.2.0", 5.0, None),
    ]
    assert [(each["decision"], each["version"], each["champion"]) for each in found["decisions"]] == [
        ("promote", "1.1.0", "1.0.0"),
        ("promote", "1.0.0", None),
    ]
    assert found["trigger"]["checks"] == [
        {"condition": "new_records", "text": "70 of 100 new records", "is_met": False}
    ]
    assert found["asset_uri"] == f"model://file{served.models}/{served.name}"
    assert page.client.get("/api/models/unknown").status_code == 404


def test_models_that_cannot_be_read_are_shown_as_that(
    kafka: RunningKafka, open_page: Callable[..., PageClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page(kafka, wasmline_conn_id="wasmline_missing")
    assert wait_until(lambda: page.get("state")["models_state"] == "failed", WAIT_S)
    found = page.get("state")
    assert (found["models"], "wasmline_missing" in found["models_problem"]) == ([], True)

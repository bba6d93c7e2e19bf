"""The page in a real browser before a real Airflow: the demo's pipeline has run, and its stream runs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import demo_settings
from delivery.generator import Drift, generate
from delivery.reference_transform import transform
from support.browser import CHROMIUM, chromium
from support.plugin_page.airflow_page import WAIT_MS, AirflowPage
from wasmline.control import DeploymentEvent, DeploymentTopic, HistoryTopic, deploy, read_job_events
from wasmline.kafka import produce_all
from wasmline.local.process import wait_until
from wasmline.redrive import DeadLetterReader
from wasmline.registry import FilesystemRegistry
from wasmline.testing.kafka import RunningKafka
from wasmline.training import PromotionLog

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]

PICTURES = os.environ.get("WASMLINE_PICTURES")

ROWS = 6_000

NAME = demo_settings.TRANSFORM

RETRAIN = "retrain_delivery_eta"

MODEL = "delivery-eta"


@pytest.fixture(scope="module")
def airflow_users() -> dict[str, str]:
    return {"ada": "admin", "uma": "user", "vera": "viewer"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page_of(
    airflow: Any, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], AirflowPage]]:
    """Return the page of a user; "" has not signed in."""
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    pages: dict[str, AirflowPage] = {}

    def page_of(user: str) -> AirflowPage:
        if user not in pages:
            pages[user] = AirflowPage(browser, airflow.api.url, pictures)
            if user:
                pages[user].sign_in(user, airflow.local.passwords[user])
        return pages[user]

    yield page_of
    for page in pages.values():
        page.context.close()


@pytest.fixture(scope="module")
def pipeline(airflow: Any) -> str:
    """The run of the demo's pipeline, which leaves two transforms, a model, and dead letters."""
    run: str = airflow.run("delivery_pipeline", rows=ROWS, report=str(airflow.home))
    return run


@pytest.fixture(scope="module")
def stream(airflow: Any, pipeline: str) -> str:
    """The run of the supervising DAG that has started the stream, which runs."""
    run: str = airflow.run("supervise_streams")
    return run


@pytest.fixture(scope="module")
def page(page_of: Callable[[str], AirflowPage], stream: str) -> AirflowPage:
    """The page of a user who may act."""
    return page_of("ada")


def events(kafka: RunningKafka) -> list[DeploymentEvent]:
    """Return what was done to the deployment, in order."""
    return [event for generation in HistoryTopic(kafka.config).generations(NAME) for event in generation.events]


def produce(kafka: RunningKafka, rows: int, seed: int) -> None:
    records = generate(rows, seed=seed)
    produce_all(kafka.config, demo_settings.RAW, ((each.key, each.value, None, None) for each in records))


def test_the_stream_is_seen_from_the_navigation(page: AirflowPage) -> None:
    page.tab.goto(page.url)
    page.tab.get_by_role("link", name="Wasmline").first.click()
    row = page.row(NAME)
    page.shows(row, "running")
    page.shows(row, "3 / 3")
    expect(page.see("header .cluster")).to_contain_text("connected", timeout=WAIT_MS)


def test_its_lag_moves(page: AirflowPage, kafka: RunningKafka) -> None:
    page.open(f"#/transforms/{NAME}")
    page.shows(page.fact("Lag"), re.compile("^0$"))
    page.press("Pause")
    page.shows(page.see(".effects"), "Records wait in the input topic")
    page.confirm("Pause", "to see the lag grow")
    page.shows(page.see(".title"), "paused")
    produce(kafka, 2_000, seed=8)
    page.shows(page.fact("Lag"), "2,000")
    page.press("Resume")
    page.confirm("Resume", "it has grown")
    page.shows(page.see(".title"), "running")
    page.shows(page.fact("Lag"), re.compile("^0$"))
    page.open("#/transforms")
    page.shows(page.row(MODEL), "succeeded")
    page.picture("transforms", height=240)
    page.open(f"#/transforms/{NAME}")
    page.shows(page.fact("Records/s"), re.compile("^0$"))  # half a minute after its last batch
    assert [(each.action, each.cause.by) for each in events(kafka)][-2:] == [("pause", "ada"), ("resume", "ada")]


def test_a_transform_is_rolled_back(page: AirflowPage, kafka: RunningKafka, airflow: Any) -> None:
    registry = FilesystemRegistry(str(airflow.home / "registry"))
    with closing(DeploymentTopic(kafka.config)) as deployments:
        current = deployments.get(NAME)
    _, wasm = registry.load(NAME, current.spec.version)
    limited = deploy(kafka.config, replace(current.spec, cpu_ms_per_record=500), wasm)
    page.open(f"#/transforms/{NAME}")
    page.shows(page.see(".title"), f"generation {limited.generation}")
    page.press("Roll back…")
    page.shows(page.see(".effects"), "What changes: cpu_ms_per_record.")
    page.picture("roll-back")
    began = time.monotonic()
    page.confirm("Roll back", "500 ms are too few")
    page.shows(page.see(".title"), f"generation {limited.generation + 1}")
    seen_after_s = time.monotonic() - began
    page.shows(page.see('[aria-label="Partitions"]'), "running")
    page.picture("transform")
    *_, event = events(kafka)
    assert (event.action, event.cause.by, event.cause.reason) == ("rollback", "ada", "500 ms are too few")
    assert event.deployment.spec.cpu_ms_per_record == current.spec.cpu_ms_per_record
    print(f"a rollback was seen {seen_after_s:.1f} s after it was asked for")  # noqa: T201


def test_dead_letters_are_read_and_redriven(page: AirflowPage, kafka: RunningKafka) -> None:
    page.open(f"#/transforms/{NAME}")
    letter = page.frame.locator(".records details").first
    page.shows(letter, "delivery-distance@")
    letter.locator("summary").first.click()
    page.shows(letter, "bytes")
    page.press("Redrive dead letters…")
    page.see('dialog button.primary:text-is("Continue")').click()
    page.shows(page.see(".effects"), f"They are processed by version 1.0.0 of {NAME}")
    reader = DeadLetterReader(kafka.config, demo_settings.DEAD_LETTERS)
    before = {each.position for each in reader.read()}
    page.confirm("Redrive", "tried again")
    page.shows(page.see('[aria-label="Redrives"]'), "ada")
    page.shows(page.see('[aria-label="Redrives"]'), "done")
    state = reader.state()
    letters = {each.position: each for each in reader.read()}
    assert all(letters[position].is_redriven(state) for position in before)


def test_the_run_and_the_task_show_what_they_did(page: AirflowPage, stream: str) -> None:
    page.tab.goto(f"{page.url}/dags/supervise_streams/runs/{stream}")
    page.tab.locator('a[href*="wasmline-run"]').first.click()
    page.shows(page.see("main h1"), stream)
    page.shows(page.row(NAME), "3 / 3")
    page.picture("run")
    page.tab.goto(f"{page.url}/dags/supervise_streams/runs/{stream}/tasks/ensure_{NAME}")
    page.tab.locator('a[href*="wasmline-task"]').first.click()
    page.shows(page.see("main h1"), f"ensure_{NAME}")
    page.shows(page.row(NAME), "3 / 3")


def test_a_promotion_is_approved(
    page: AirflowPage, page_of: Callable[[str], AirflowPage], kafka: RunningKafka, airflow: Any
) -> None:
    log = PromotionLog(str(airflow.home / "models"))
    features = map(transform, (each.value for each in generate(4_000, seed=11, drift=Drift(day=0))))
    slower = ((None, each, None, None) for each in features if isinstance(each, bytes))
    produce_all(kafka.config, demo_settings.FEATURES, slower)
    airflow.api.unpause(RETRAIN)
    run = airflow.api.trigger(RETRAIN, {"approval": True, "windows": ["all"]})
    page.open(f"#/models/{MODEL}")
    page.shows(page.fact("Champion"), "1.0.0")
    approval = page.see(".approval")
    expect(approval).to_be_visible(timeout=300_000)
    page.shows(approval, f"Promote the new version of {MODEL}?")
    viewer = page_of("vera")
    viewer.open(f"#/models/{MODEL}")
    viewer.shows(viewer.see(".approval"), "It is answered at its task in Airflow.")
    page.tab.wait_for_timeout(15_000)  # Airflow's scheduler fails a task that is answered before it knows that it waits
    page.picture("model")
    approval.get_by_role("button", name="Promote", exact=True).click()
    page.confirm("Promote")
    airflow.wait(RETRAIN, run, timeout=240)
    page.shows(page.fact("Champion"), log.champion(MODEL) or "none")
    *_, promoted = log.history(MODEL)
    assert (promoted.decision, promoted.version, promoted.by) == ("promote", log.champion(MODEL), "ada")
    assert promoted.version != "1.0.0"
    expect(approval).not_to_be_attached(timeout=WAIT_MS)


def test_a_viewer_sees_and_may_not_act(page_of: Callable[[str], AirflowPage], stream: str, kafka: RunningKafka) -> None:
    viewer = page_of("vera")
    for view in (f"#/transforms/{NAME}", f"#/jobs/{NAME}", f"#/models/{MODEL}"):
        viewer.open(view)
        viewer.shows(viewer.see("header"), "Read only: vera may see this page, not act.")
        assert viewer.frame.locator(".heading button").all() == []
    asked = viewer.context.request.post(
        f"{viewer.url}/wasmline/api/actions/pause",
        headers={"X-Wasmline": "1"},
        data={"transform": NAME, "expected_generation": 1, "reason": "a test"},
    )
    assert asked.status == 403
    with closing(DeploymentTopic(kafka.config)) as deployments:
        assert deployments.get(NAME).state == "running"


def test_nobody_sees_anything(page_of: Callable[[str], AirflowPage], stream: str) -> None:
    nobody = page_of("")
    for path in ("page", "api/state", f"api/transforms/{NAME}"):
        assert nobody.context.request.get(f"{nobody.url}/wasmline/{path}").status == 401
    nobody.tab.goto(f"{nobody.url}/plugin/wasmline")
    expect(nobody.tab).to_have_url(re.compile("/auth/login"), timeout=WAIT_MS)


def test_the_stream_is_stopped(page_of: Callable[[str], AirflowPage], stream: str, kafka: RunningKafka) -> None:
    user = page_of("uma")
    user.tab.evaluate("localStorage.setItem('theme', 'dark')")
    user.open(f"#/jobs/{NAME}")
    user.shows(user.see(".title"), "running")
    user.picture("job-dark")
    user.press("Stop…")
    user.confirm("Stop", "the test is over")
    user.shows(user.see(".title"), "stopped")
    *_, event = read_job_events(kafka.config, NAME)
    assert (event.action, event.cause.by, event.cause.run) == ("stop", "uma", "page")
    assert wait_until(lambda: user.see(".title .badge").inner_text() == "stopped", 30)

"""The page of the plugin in a real browser, before a server with canned answers."""

from __future__ import annotations

import json
import logging
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from support.browser import CHROMIUM, chromium
from support.plugin_page.canned_cluster import HOSTILE, CannedCluster, large_cluster, now_ms, small_cluster, transform
from support.plugin_page.canned_server import canned_server
from support.plugin_page.page_in_browser import PageInBrowser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

logger = logging.getLogger(__name__)

HOSTILE_PART = urllib.parse.quote(HOSTILE, safe="")

VIEWS = [
    "#/transforms", "#/jobs", "#/models", "#/transforms/eta", "#/jobs/eta", "#/models/eta",
    "#/record/eta-features/0/12", f"#/transforms/{HOSTILE_PART}", f"#/jobs/{HOSTILE_PART}",
    f"#/record/{HOSTILE_PART}/0/1",
]  # fmt: skip


class Open(Protocol):
    def __call__(self, cluster: CannedCluster) -> PageInBrowser: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page_of(browser: Browser) -> Iterator[Open]:
    """Return a function of a cluster that serves the page with it; at the end no script of the page has failed."""
    with ExitStack() as servers, browser.new_context() as context:
        pages = []

        def opened(cluster: CannedCluster) -> PageInBrowser:
            pages.append(PageInBrowser(context.new_page(), servers.enter_context(canned_server(cluster))))
            return pages[-1]

        yield opened
        for page in pages:
            assert page.script("return [violations, failures]") == [[], []]
            page.tab.close()  # before its server


def test_a_change_keeps_rows_focus_and_scroll(page_of: Open) -> None:
    cluster = large_cluster(transforms=60)
    page = page_of(cluster)
    page.open()
    page.wait(lambda: len(page.all("tbody svg")) == 60)  # the lines come later
    page.script("document.querySelectorAll('tbody tr').forEach((row) => { row.isKept = true; })")
    page.script("scrollTo(0, 300); document.querySelector('tbody tr:nth-child(20) a').focus({preventScroll: true})")
    place = page.script("return document.activeElement.getBoundingClientRect().top")
    page.script(
        "window.changed = new Set(); new MutationObserver((all) => all.forEach(({target}) => changed.add("
        "(target.parentElement ?? target).closest('tr')?.querySelector('a')?.textContent))).observe("
        "document.querySelector('tbody'), {subtree: true, childList: true, characterData: true, attributes: true})"
    )
    cluster.change("transforms", "transform-030", lag=77_777)
    cluster.remove("transforms", "transform-001")
    cluster.add("transforms", "transform-000-b", transform("transform-000-b"))
    page.refresh()
    page.wait(lambda: "77,777" in page.text("tbody"))
    *state, changed = page.script(
        "const rows = [...document.querySelectorAll('tbody tr')];"
        "const name = (row) => row.querySelector('a').textContent;"
        "return [document.activeElement.getBoundingClientRect().top, document.activeElement.textContent,"
        " rows.filter((row) => !row.isKept).map(name), [...changed].filter(Boolean)]"
    )
    assert state == [pytest.approx(place, abs=1), "transform-019", ["transform-000-b"]]
    assert "transform-030" in changed
    assert set(changed) <= {"transform-030", "transform-000-b"}
    assert "transform-001" not in page.text("tbody")


def test_everything_sent_again_draws_no_row_again(page_of: Open) -> None:
    cluster = small_cluster()
    page = page_of(cluster)
    page.open("#/transforms/eta")
    page.find(".records summary").click()
    page.script("document.querySelectorAll('tbody tr, details').forEach((each) => { each.isKept = true; })")
    for _ in range(2):
        seen = len(page.server.requests)
        page.refresh()
        page.wait(lambda seen=seen: "/wasmline/api/transforms/eta" in page.server.requests[seen:])  # type: ignore[misc]
    assert page.script("return [...document.querySelectorAll('tbody tr, details')].every((each) => each.isKept)")
    assert page.script("return document.querySelector('.records details').open")


def test_hostile_strings_are_inert(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open()
    for view in VIEWS:
        page.show(view)
        assert page.script("return [window.hacked ?? null, violations, failures]") == [None, [], []], view
        assert page.script("return document.querySelectorAll('img, script:not([src]), [style]').length") == 0, view
        assert "\u202e" not in page.text("body"), view  # it could turn other text around
    page.open("", query="?dag=d&run=r&task=t")
    assert "Task d · r · t" in page.text("main h1")
    foreign = [each for each in page.server.requests if not each.startswith(("/wasmline/", "/api/v2/"))]
    assert foreign == []


def test_names_are_escaped_in_addresses(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open()
    page.script("[...document.querySelectorAll('tbody a')].find((a) => a.textContent === 'orders/enriched v2').click()")
    page.wait(lambda: "orders/enriched v2" in page.text("main h1") and "Generations" in page.text("main"))
    assert "/wasmline/api/transforms/orders%2Fenriched%20v2" in page.server.requests


def test_a_cluster_that_is_away_is_told_with_the_age_of_what_is_shown(page_of: Open) -> None:
    cluster = small_cluster()
    page = page_of(cluster)
    page.open()
    cluster.state, cluster.error, cluster.read_ms = "away", "broker-1:9092: connection refused", now_ms() - 190_000
    page.refresh()
    page.wait(lambda: "is away" in page.text('[role="alert"]'))
    assert "as of 3 min ago" in page.text('[role="alert"]')
    assert cluster.error in page.text('[role="alert"]')
    assert "eta" in page.text("main.stale tbody")
    cluster.state, cluster.error, cluster.read_ms = "connected", "", now_ms()
    page.refresh()
    page.wait(lambda: page.text('[role="alert"]') == "" and not page.all("main.stale"))


def test_what_cannot_be_read_of_a_connected_cluster_is_told(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.error, cluster.unreadable = "no leader for orders-0", 3
    page = page_of(cluster)
    page.open()
    told = page.text('[role="alert"]')
    assert ("its lag is as it was reported last. no leader for orders-0" in told, "cannot read: 3." in told) == (
        True,
        True,
    )
    assert not page.all("main.stale")


def test_a_viewer_has_no_buttons_and_is_told_why(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.may_act = False
    page = page_of(cluster)
    page.open()
    for view in VIEWS:
        page.show(view)
        buttons = page.frame.locator("button:not(.sort)").all_inner_texts()
        assert set(buttons) <= {"Look up", "Previous", "Next"}, view
    assert "Read only: alice may see this page, not act." in page.text("header")


def test_an_action_says_what_it_does_asks_and_shows_its_result(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open(framed=True)  # the sandbox of Airflow's frame lets no window open: the dialog is none
    page.button("Pause", "tbody tr:nth-child(3)").click()
    page.wait(lambda: page.text(".effects") != "")
    assert (page.text("dialog h2"), page.text(".effects li")) == ("Pause eta", "eta is changed by pause.")
    page.find("dialog textarea").fill("the disk is full")
    page.button("Pause", "dialog").click()
    page.wait(lambda: page.text("#announcement") == "pause of eta is done")
    page.wait(lambda: "paused" in page.text("tbody tr:nth-child(3)"))
    page.wait(lambda: page.script("return document.activeElement.textContent") == "Resume")
    bodies = [(path, headers.get("X-Wasmline"), body) for path, headers, body in page.server.posts]
    plan = {"transform": "eta"}
    assert bodies == [
        ("/wasmline/api/plans/pause", "1", plan),
        ("/wasmline/api/actions/pause", "1", {**plan, "expected_generation": 3, "reason": "the disk is full"}),
    ]


def test_an_action_shows_as_asked_until_the_state_has_changed(page_of: Open) -> None:
    cluster = small_cluster()
    page = page_of(cluster)
    page.open("#/transforms/eta")
    page.button("Roll back…").click()
    page.find("dialog textarea").fill("1.4.0 is slow")
    page.button("Roll back", "dialog").click()
    page.wait(lambda: "asked: roll back" in page.text(".heading"))
    seen = len(page.server.requests)
    page.wait(lambda: sum("api/state" in each for each in page.server.requests[seen:]) >= 3)  # each half a second
    cluster.change("transforms", "eta", generation=4, version="1.3.0")
    page.refresh()
    page.wait(lambda: "generation 4" in page.text(".heading"))
    assert "asked" not in page.text(".heading")


def test_an_action_that_fails_says_why_and_keeps_the_reason(page_of: Open) -> None:
    cluster = small_cluster()
    page = page_of(cluster)
    page.open()
    page.button("Pause", "tbody tr:nth-child(3)").click()
    page.find("dialog textarea").fill("the disk is full")
    cluster.failing = 503
    page.button("Pause", "dialog").click()
    page.wait(lambda: "the server fails" in page.text("dialog .problem"))
    assert page.find("dialog textarea").input_value() == "the disk is full"
    cluster.failing = 0


def test_what_is_not_possible_cannot_be_asked_for(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("#/jobs/eta")
    page.button("Stop…").click()
    page.wait(lambda: "the job is stopped already" in page.text("dialog .problem"))
    assert not page.button("Stop", "dialog").is_enabled()
    assert page.all("dialog textarea") == []


def test_a_version_is_chosen_before_the_plan(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("#/transforms/eta")
    page.button("Deploy a version…").click()
    page.wait(lambda: page.all("dialog option"))
    assert page.find("dialog select").locator("option").all_inner_texts() == ["1.5.0", "1.4.0 (deployed)", "1.3.0"]
    page.button("Continue", "dialog").click()
    page.wait(lambda: page.server.posts)
    assert page.server.posts[0][2] == {"transform": "eta", "version": "1.5.0"}


def test_an_approval_is_answered(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("#/models/eta")
    page.button("Reject").click()
    assert "An earlier question" not in page.text("main")
    assert "eta@1.4.0: RMSE 4.19, the champion's 4.21." in page.text(".approval")
    assert page.text(".approval strong") == "eta@1.4.0"
    assert page.frame.locator(".approval td").all_inner_texts() == ["vehicle=scooter | bike", "7 min", "8 min"]
    page.button("Reject", "dialog").click()
    page.wait(lambda: page.text("#announcement") == "approve is answered: Reject")
    page.wait(lambda: not page.all(".approval"))
    run = urllib.parse.quote("scheduled__2026-11-27T00:00:00+00:00", safe="")
    [(path, _, body)] = page.server.posts
    assert path == f"/api/v2/dags/retrain_delivery_eta/dagRuns/{run}/taskInstances/approve/-1/hitlDetails"
    assert body == {"chosen_options": ["Reject"], "params_input": {}}


@pytest.mark.parametrize(("assigned", "buttons"), [(("8",), 0), (("8", "7"), 2)])
def test_an_approval_that_asks_others_has_no_buttons(page_of: Open, assigned: tuple[str, ...], buttons: int) -> None:
    cluster = small_cluster()
    cluster.assigned_users = assigned
    page = page_of(cluster)
    page.open("#/models/eta")
    page.wait(lambda: page.all(".approval"))
    assert page.frame.locator(".approval button").count() == buttons


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("a\\\\.b and a\\.b", ["a\\.b and a.b"]),
        ("a ** 2 + b ** 2 is **bold**", ["a ** 2 + b ** 2 is bold"]),
        ("| a | b |\r\n|---|---|\r\n| C:\\\\|7 |\r\n|  | \\| |", ["a", "b", "C:\\", "7", "", "|"]),
        (
            "abcde\n\n" * 2_858,
            [*["abcde"] * 2_857, "a", "The text goes on: its last 6 letters are on the task's own page."],
        ),
    ],
)
def test_markdown_is_shown_as_it_was_meant(page_of: Open, source: str, shown: list[str]) -> None:
    page = page_of(small_cluster())
    page.open("#/transforms")
    found = page.frame.evaluate(
        """async (source) => {
            const { markdown } = await import(new URL("static/markdown.js", document.baseURI));
            const { draw } = await import(new URL("static/elements.js", document.baseURI));
            const place = document.createElement("div");
            draw(place, markdown(source, "label"));
            return [...place.querySelectorAll("p, th, td")].map((each) => each.textContent);
        }""",
        source,
    )
    assert found == shown


@pytest.mark.parametrize("name", ["constructor", "toString", "__proto__"])
def test_no_name_of_javascripts_own_is_a_view(page_of: Open, name: str) -> None:
    page = page_of(small_cluster())
    page.open(f"#/{name}")
    page.wait(lambda: "There is no such view" in page.text("main"))


def test_a_run_whose_tasks_name_many_jobs_is_asked_for_in_pieces_and_shown_as_one(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.task_count, cluster.jobs_named = 230, 120
    page = page_of(cluster)
    page.open("", query="?dag=d&run=r")
    page.wait(lambda: "as they are now" in page.text("main"))
    asked = {each for each in page.server.requests if each.startswith("/wasmline/api/runs/")}
    assert sorted(each.count("job=") + each.count("transform=") for each in asked) == [22, 50, 50]
    assert page.text("main").count("eta running") == 1


def test_a_model_is_retrained_now(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("#/models/eta")
    page.button("Retrain now…").click()
    page.wait(lambda: "The DAG retrain_delivery_eta is triggered now" in page.text(".effects"))
    page.find("dialog textarea").fill("new restaurants")
    page.button("Retrain", "dialog").click()
    page.wait(lambda: page.text("#announcement") == "run manual__2 of retrain_delivery_eta is triggered")
    assert [(path, body) for path, _, body in page.server.posts] == [
        ("/api/v2/dags/retrain_delivery_eta/dagRuns", {"logical_date": None, "conf": {}, "note": "new restaurants"})
    ]


def test_only_a_dag_that_trains_the_model_is_offered(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.dags = {"hidden": [], "roll_back_eta": ["RollbackModelOperator"], "weekly_eta": ["OurTrainModelOperator"]}
    cluster.paused_dags = {"weekly_eta"}
    page = page_of(cluster)
    page.open("#/models/eta")
    page.button("Retrain now…").click()
    page.wait(lambda: "The DAG weekly_eta is triggered now" in page.text(".effects"))
    assert "It is paused" in page.text(".effects")
    assert page.all("dialog select") == []
    page.button("Cancel", "dialog").click()
    del cluster.dags["weekly_eta"]
    page.show("#/models")
    page.show("#/models/eta")
    page.wait(lambda: "Decisions" in page.text("main"))
    assert "Retrain now…" not in page.text("main")


def test_a_dag_that_is_hidden_hides_no_approval_of_others(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.dags["hidden"] = []
    page = page_of(cluster)
    page.open("#/models/eta")
    page.wait(lambda: "Promote eta@1.4.0?" in page.text(".approval"))
    assert page.all("main .banner.bad") == []


def test_a_model_that_was_never_read_has_no_empty_lists(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.model_problem = "the store is away"
    page = page_of(cluster)
    page.open("#/models/eta")
    page.wait(lambda: "cannot be read now: the store is away" in page.text("main"))
    assert "No version was trained yet" not in page.text("main")


def test_models_that_cannot_be_read_say_why(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.models_state, cluster.models_problem = "failed", "the connection wasmline is missing"
    page = page_of(cluster)
    page.open("#/models")
    assert "cannot be read now: the connection wasmline is missing" in page.text("main")
    assert "eta" in page.text("tbody")
    cluster.models.clear()
    page.refresh()
    page.wait(lambda: "No model is known" in page.text("main"))
    assert "the connection wasmline is missing" in page.text("main")


def test_a_run_is_asked_for_with_the_names_of_its_tasks(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("", query="?dag=d&run=r")
    page.wait(lambda: "as they are now" in page.text("main"))
    asked = {each for each in page.server.requests if each.startswith("/wasmline/api/runs/")}
    assert asked == {"/wasmline/api/runs/d/r?job=eta&transform=eta"}


def test_all_tasks_of_a_run_are_asked_for(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.task_count = 230
    page = page_of(cluster)
    page.open("", query="?dag=d&run=r")
    page.wait(lambda: "/wasmline/api/runs/d/r?job=eta&transform=eta" in page.server.requests)


def test_a_mapped_task_is_asked_for_by_its_index(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("", query="?dag=d&run=r&task=stream&map=3")
    page.wait(lambda: "/wasmline/api/runs/d/r?task=stream&map_index=3&job=eta&transform=eta" in page.server.requests)
    [asked] = {each for each in page.server.requests if "taskInstances" in each}
    assert "task_id=stream&map_index=3" in asked
    assert page.find("main h1 a").get_attribute("href") == "../dags/d/runs/r/tasks/stream/mapped/3"
    page.open("", query="?dag=d&run=r&task=stream&map=-1")
    page.wait(lambda: "/wasmline/api/runs/d/r?task=stream&job=eta&transform=eta" in page.server.requests)


def test_a_job_that_counts_for_no_pause_offers_none(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("#/jobs/eta")
    assert page.button("Stop…").is_visible()
    assert "Pause" not in page.text(".buttons")


def test_a_job_that_runs_a_function_is_paused(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.change("jobs", "eta", transform=None, work="function enrich")
    page = page_of(cluster)
    page.open("#/jobs/eta")
    page.button("Pause").click()
    page.wait(lambda: page.text("dialog h2") == "Pause eta")
    assert page.server.posts[0][2] == {"job": "eta"}


def test_the_address_bar_names_the_view_and_leads_to_it(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open(framed=True)
    page.script("[...document.querySelectorAll('tbody a')].find((a) => a.textContent === 'eta').click()")
    address = f"{page.server.url}/plugin/wasmline/wasmline/page#/transforms/eta"
    page.wait(lambda: page.tab.url == address)
    page.open("#/jobs/eta", framed=True)
    assert page.text("main h1") == "eta"
    assert page.tab.url.endswith("/plugin/wasmline/wasmline/page#/jobs/eta")


def test_whoever_may_act_on_one_transform_has_its_buttons(page_of: Open) -> None:
    cluster = small_cluster()
    cluster.may_act, cluster.may_act_on_eta, cluster.redrive_problem = False, True, "BrokerUnavailable: no leader"
    page = page_of(cluster)
    page.open("#/transforms/eta")
    assert page.button("Roll back…")
    assert "Read only" not in page.text("header")
    assert "The last one failed: BrokerUnavailable: no leader" in page.text("main")
    page.show("#/transforms/fraud")
    page.wait(lambda: "Read only" in page.text("header"))
    assert "Roll back…" not in page.text("main")


def test_an_action_needs_no_mouse(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open()
    page.keys("Tab")
    assert page.script("return document.activeElement.textContent") == "Skip to the content"
    page.keys("Enter", *["Tab"] * 3)
    assert page.script("return document.activeElement.getAttribute('aria-label')") == "Transforms"  # the rows scroll
    page.script("document.querySelector('tbody tr:nth-child(3) button').focus()")
    page.keys("Enter")
    page.wait(lambda: page.script("return document.activeElement.name") == "reason")
    for _ in range(6):  # nothing behind the dialog has the focus
        page.keys("Tab")
        assert page.script(
            "return document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keys("Escape")
    page.wait(lambda: page.script("return document.activeElement.getAttribute('aria-label')") == "Pause eta")
    page.keys("Enter")
    page.wait(lambda: page.script("return document.activeElement.name") == "reason")
    page.tab.keyboard.type("by keys")
    page.keys("Tab", "Enter")
    page.wait(lambda: page.text("#announcement") == "pause of eta is done")


def test_two_hundred_transforms_are_painted(page_of: Open) -> None:
    page = page_of(large_cluster())
    page.tab.add_init_script(
        "new MutationObserver((_, observer) => { if (document.querySelectorAll('tbody tr').length < 200)"
        " return; observer.disconnect(); requestAnimationFrame(() => setTimeout(() => { window.painted_ms ="
        " performance.now(); })); }).observe(document, {subtree: true, childList: true})"
    )
    page.open()
    painted_ms = page.wait(lambda: page.script("return window.painted_ms"))
    arrived_ms = page.script(
        "return performance.getEntriesByType('resource').find(({name}) => name.endsWith('api/state')).responseEnd"
    )
    logger.info("painted %d ms after the state, %d ms after the start", painted_ms - arrived_ms, painted_ms)
    assert len(page.all("tbody tr")) == 200


def test_two_thousand_partitions_are_shown_in_pages(page_of: Open) -> None:
    page = page_of(large_cluster())
    page.open("#/transforms/transform-007")
    rows = '[aria-label="Partitions"] tbody tr'
    page.wait(lambda: len(page.all(rows)) == 100)
    page.script("[...document.querySelectorAll('button')].find((each) => each.textContent === 'Next').click()")
    page.wait(lambda: "101–200 of 2,000 rows" in page.text(".pages"))
    page.script("[...document.querySelectorAll('button.sort')].find((b) => b.textContent.startsWith('Offset')).click()")
    page.wait(lambda: page.all('th[aria-sort="ascending"]'))
    page.find('[aria-label="Filter by partition or host"]').fill("1999")
    page.wait(lambda: page.script("return document.querySelectorAll(arguments[0]).length", rows) == 1)


def test_the_filter_and_the_order_stay_over_refreshes(page_of: Open) -> None:
    cluster = small_cluster()
    page = page_of(cluster)
    page.open()
    page.script("[...document.querySelectorAll('button.sort')].find((b) => b.textContent === 'Lag').click()")
    page.find('[aria-label="Filter by state"]').select_option("running")
    names = "return [...document.querySelectorAll('tbody th a')].map((a) => a.textContent)"
    page.wait(lambda: page.script(names) == ["delivery_distance", "eta", "orders/enriched v2", "geohash"])
    cluster.change("transforms", "delivery_distance", lag=121)
    page.refresh()
    page.wait(lambda: page.script(names)[0] == "eta")
    page.show("#/jobs")
    page.show("#/transforms")
    assert page.script(names)[0] == "eta"


def test_the_theme_follows_airflows(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open(framed=True)
    for theme in ("dark", "light"):
        page.tab.evaluate("(theme) => localStorage.setItem('theme', theme)", theme)
        page.wait(lambda theme=theme: page.script("return document.documentElement.dataset.theme") == theme)  # type: ignore[misc]
        assert page.script("return getComputedStyle(document.documentElement).colorScheme") == theme
    page.script("localStorage.setItem('theme', 'dark')")
    page.open()
    assert page.script("return document.documentElement.dataset.theme") == "dark"
    page.script("localStorage.setItem('theme', 'system')")
    page.tab.emulate_media(color_scheme="dark")
    page.open()
    assert page.script("return document.documentElement.dataset.theme") == "dark"


def test_a_narrow_window_scrolls_tables_and_not_the_document(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open(width=400)
    for view in VIEWS:
        page.show(view)
        assert page.script("return document.documentElement.scrollWidth <= innerWidth"), view


def test_a_link_to_a_run_moves_airflows_router(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open(framed=True)
    page.show("#/jobs/eta")
    page.script("[...document.querySelectorAll('dd a')].find((a) => a.textContent.startsWith('delivery_p')).click()")
    run = urllib.parse.quote("manual__2026-11-27T08:00:00+00:00", safe="")
    page.wait(lambda: page.tab.evaluate("moves") == [f"/dags/delivery_pipeline/runs/{run}/tasks/run"])


@pytest.mark.parametrize(
    ("status", "told"), [(401, "sign in to Airflow again"), (403, "Not permitted"), (503, "fails")]
)
def test_a_request_that_fails_is_told_and_repeated_more_rarely(page_of: Open, status: int, told: str) -> None:
    cluster = small_cluster()
    page = page_of(cluster)
    page.open()
    cluster.failing = status
    page.refresh()
    page.wait(lambda: told in page.text('[role="alert"]'))
    assert page.all("main.stale tbody tr")
    waited_ms = page.script(
        "const ends = performance.getEntriesByType('resource').filter(({name}) => name.includes('api/state'));"
        "return performance.now() - ends.at(-1).responseEnd"
    )
    assert waited_ms < 4_000  # the next one comes 4 s after this one
    cluster.failing = 0
    page.refresh()
    page.wait(lambda: page.text('[role="alert"]') == "")


def test_a_hidden_document_reads_nothing(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open()
    hide = (
        "Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments[0]});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.script(f"window.hide = function () {{ {hide} }}; hide(true)")
    seen = len(page.server.requests)
    page.script("const at = performance.now(); while (performance.now() - at < 2200);")  # its timers are due
    page.script("return new Promise((resolve) => setTimeout(resolve, 300))")
    assert len(page.server.requests) - seen <= 1  # one was on its way
    seen = len(page.server.requests)
    page.script("hide(false)")
    page.wait(lambda: len(page.server.requests) > seen)


def test_a_slow_request_is_never_doubled(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open()
    page.server.delay_s = 2.5
    page.script("for (const type of ['visibilitychange', 'visibilitychange']) document.dispatchEvent(new Event(type))")
    page.wait(lambda: page.server.most_at_once.get("/wasmline/api/state"))
    page.script("for (let i = 0; i < 5; i += 1) document.dispatchEvent(new Event('visibilitychange'))")
    page.server.delay_s = 0
    assert page.server.most_at_once["/wasmline/api/state"] == 1


def test_empty_lists_say_what_to_do_next(page_of: Open) -> None:
    page = page_of(CannedCluster())
    page.open()
    hints = {
        "transforms": "wasmline deploy NAME@VERSION",
        "jobs": "SparkStreamOperator",
        "models": "TrainModelOperator",
    }
    for view, hint in hints.items():
        page.show(f"#/{view}")
        assert hint in page.text("main")
    page.open("", query="?dag=d&run=nothing")
    page.wait(lambda: "has changed nothing on the cluster yet" in page.text("main"))
    page.show("#/transforms/nothing")
    page.wait(lambda: "No transform of this name" in page.text("main"))
    page.show("#/nothing")
    assert "There is no such view" in page.text("main")


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(page_of: Open, theme: str) -> None:
    page = page_of(small_cluster())
    page.open()
    page.script("localStorage.setItem('theme', arguments[0])", theme)
    page.open()
    found = {}
    for view in VIEWS:
        page.show(view)
        found[view] = violations(page)
    page.show("#/transforms/eta")
    page.button("Roll back…").click()
    page.find("dialog textarea")
    found["dialog"] = violations(page)
    assert not any(found.values()), json.dumps({view: each for view, each in found.items() if each}, indent=1)


def violations(page: PageInBrowser) -> list[str]:
    """Return what axe finds: rule, impact and the first element."""
    result = Axe().run(page.tab).response
    assert "color-contrast" in {each["id"] for each in result["passes"]}
    return [f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:300]}" for each in result["violations"]]

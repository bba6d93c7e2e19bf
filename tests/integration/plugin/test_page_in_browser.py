"""The page of the plugin in a real browser, before a server with canned answers."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import logging
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from support.browser import CHROMIUM, DRIVER, chromium
from support.plugin_page.canned_cluster import HOSTILE, CannedCluster, large_cluster, now_ms, small_cluster, transform
from support.plugin_page.canned_server import canned_server
from support.plugin_page.page_in_browser import PageInBrowser, listen

pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs Chromium with its driver")

logger = logging.getLogger(__name__)

HOSTILE_PART = urllib.parse.quote(HOSTILE, safe="")

VIEWS = [
    "#/transforms", "#/jobs", "#/models", "#/transforms/eta", "#/jobs/eta", "#/models/eta",
    "#/record/eta-features/0/12", f"#/transforms/{HOSTILE_PART}", f"#/jobs/{HOSTILE_PART}",
    f"#/record/{HOSTILE_PART}/0/1",
]  # fmt: skip

AXE = "axe_playwright_python"


class Open(Protocol):
    def __call__(self, cluster: CannedCluster) -> PageInBrowser: ...


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        listen(browser)
        yield browser


@pytest.fixture
def page_of(browser: Chrome) -> Iterator[Open]:
    """Return a function of a cluster that serves the page with it; at the end no script of the page has failed."""
    with ExitStack() as servers:
        pages = []

        def opened(cluster: CannedCluster) -> PageInBrowser:
            pages.append(PageInBrowser(browser, servers.enter_context(canned_server(cluster))))
            return pages[-1]

        yield opened
        for page in pages:
            assert page.script("return [violations, failures]") == [[], []]
        browser.get("about:blank")


def test_a_change_keeps_rows_focus_and_scroll(page_of: Open) -> None:
    cluster = large_cluster(transforms=60)
    page = page_of(cluster)
    page.open()
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
    assert state == [place, "transform-019", ["transform-000-b"]]
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
        buttons = [
            each.text for each in page.all("button:not(.sort)") if each.text not in ("Look up", "Previous", "Next")
        ]
        assert buttons == [], view
    assert "Read only: alice may see this page, not act." in page.text("header")


def test_an_action_says_what_it_does_asks_and_shows_its_result(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open(framed=True)  # the sandbox of Airflow's frame lets no window open: the dialog is none
    page.button("Pause", "tbody tr:nth-child(3)").click()
    page.wait(lambda: page.text(".effects") != "")
    assert (page.text("dialog h2"), page.text(".effects li")) == ("Pause eta", "eta is changed by pause.")
    page.find("dialog textarea").send_keys("the disk is full")
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
    page.find("dialog textarea").send_keys("1.4.0 is slow")
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
    page.find("dialog textarea").send_keys("the disk is full")
    cluster.failing = 503
    page.button("Pause", "dialog").click()
    page.wait(lambda: "the server fails" in page.text("dialog .problem"))
    assert page.find("dialog textarea").get_property("value") == "the disk is full"
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
    assert page.text("dialog select").split("\n") == ["1.5.0", "1.4.0 (deployed)", "1.3.0"]
    page.button("Continue", "dialog").click()
    page.wait(lambda: page.server.posts)
    assert page.server.posts[0][2] == {"transform": "eta", "version": "1.5.0"}


def test_an_approval_is_answered(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("#/models/eta")
    page.button("Reject").click()
    assert "An earlier question" not in page.text("main")
    page.button("Reject", "dialog").click()
    page.wait(lambda: page.text("#announcement") == "approve is answered: Reject")
    page.wait(lambda: not page.all(".approval"))
    run = urllib.parse.quote("scheduled__2026-11-27T00:00:00+00:00", safe="")
    [(path, _, body)] = page.server.posts
    assert path == f"/api/v2/dags/retrain_delivery_eta/dagRuns/{run}/taskInstances/approve/-1/hitlDetails"
    assert body == {"chosen_options": ["Reject"], "params_input": {}}


def test_a_model_is_retrained_now(page_of: Open) -> None:
    page = page_of(small_cluster())
    page.open("#/models/eta")
    page.button("Retrain now…").click()
    page.wait(lambda: "The DAG retrain_delivery_eta is triggered now" in page.text(".effects"))
    page.find("dialog textarea").send_keys("new restaurants")
    page.button("Retrain", "dialog").click()
    page.wait(lambda: page.text("#announcement") == "run manual__2 of retrain_delivery_eta is triggered")
    assert [(path, body) for path, _, body in page.server.posts] == [
        ("/api/v2/dags/retrain_delivery_eta/dagRuns", {"logical_date": None, "conf": {}, "note": "new restaurants"})
    ]


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
    page.keys(Keys.TAB)
    assert page.script("return document.activeElement.textContent") == "Skip to the content"
    page.keys(Keys.ENTER, *[Keys.TAB] * 3)
    assert page.script("return document.activeElement.getAttribute('aria-label')") == "Transforms"  # the rows scroll
    page.script("document.querySelector('tbody tr:nth-child(3) button').focus()")
    page.keys(Keys.ENTER)
    page.wait(lambda: page.script("return document.activeElement.name") == "reason")
    for _ in range(6):  # nothing behind the dialog has the focus
        page.keys(Keys.TAB)
        assert page.script(
            "return document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keys(Keys.ESCAPE)
    page.wait(lambda: page.script("return document.activeElement.getAttribute('aria-label')") == "Pause eta")
    page.keys(Keys.ENTER)
    page.wait(lambda: page.script("return document.activeElement.name") == "reason")
    page.keys("by keys", Keys.TAB, Keys.TAB if "Cancel" in page.text("dialog .buttons button:first-child") else "")
    page.keys(Keys.ENTER)
    page.wait(lambda: page.text("#announcement") == "pause of eta is done")


def test_two_hundred_transforms_are_painted(page_of: Open) -> None:
    page = page_of(large_cluster())
    page.browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument",
        {
            "source": "new MutationObserver((_, observer) => { if (document.querySelectorAll('tbody tr').length < 200)"
            " return; observer.disconnect(); requestAnimationFrame(() => setTimeout(() => { window.painted_ms ="
            " performance.now(); })); }).observe(document, {subtree: true, childList: true})"
        },
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
    page.find('[aria-label="Filter by partition or host"]').send_keys("1999")
    page.wait(lambda: page.script("return document.querySelectorAll(arguments[0]).length", rows) == 1)


def test_the_filter_and_the_order_stay_over_refreshes(page_of: Open) -> None:
    cluster = small_cluster()
    page = page_of(cluster)
    page.open()
    page.script("[...document.querySelectorAll('button.sort')].find((b) => b.textContent === 'Lag').click()")
    page.find('[aria-label="Filter by state"]').send_keys("running")
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
        page.browser.switch_to.default_content()
        page.script("localStorage.setItem('theme', arguments[0])", theme)
        page.browser.switch_to.frame(page.find("iframe"))
        page.wait(lambda theme=theme: page.script("return document.documentElement.dataset.theme") == theme)  # type: ignore[misc]
        assert page.script("return getComputedStyle(document.documentElement).colorScheme") == theme
    page.script("localStorage.setItem('theme', 'dark')")
    page.open()
    assert page.script("return document.documentElement.dataset.theme") == "dark"
    page.script("localStorage.setItem('theme', 'system')")
    prefers_dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", prefers_dark)
    page.open()
    assert page.script("return document.documentElement.dataset.theme") == "dark"
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


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
    page.browser.switch_to.default_content()
    run = urllib.parse.quote("manual__2026-11-27T08:00:00+00:00", safe="")
    page.wait(lambda: page.script("return moves") == [f"/dags/delivery_pipeline/runs/{run}/tasks/run"])


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
@pytest.mark.skipif(importlib.util.find_spec(AXE) is None, reason="needs axe-playwright-python, for its axe.min.js")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(page_of: Open, theme: str) -> None:
    page = page_of(small_cluster())
    page.open()
    page.script("localStorage.setItem('theme', arguments[0])", theme)
    page.open()
    page.script(importlib.resources.files(AXE).joinpath("axe.min.js").read_text())
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
    result = page.browser.execute_async_script("axe.run().then(arguments[0])")
    assert "color-contrast" in {each["id"] for each in result["passes"]}
    return [f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:300]}" for each in result["violations"]]

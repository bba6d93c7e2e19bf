"""A Chromium without a window, and the forms of Airflow's web interface in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Locator, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

WAIT_MS = 60_000

ARGUMENTS = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser; each of its contexts has a profile of its own."""
    assert CHROMIUM is not None
    is_root = os.geteuid() == 0  # Chromium's own sandbox does not start as root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=not is_root, args=list(ARGUMENTS)
        )
        try:
            yield browser
        finally:
            browser.close()


class TriggerForm:
    """The form with which a user triggers a DAG."""

    def __init__(self, tab: Page, url: str, dag: str) -> None:
        self._tab = tab
        tab.goto(f"{url}/dags/{dag}")
        tab.get_by_test_id("trigger-dag-button").click(timeout=WAIT_MS)
        self._submit = tab.get_by_test_id("trigger-dag-submit")
        self._submit.wait_for(timeout=WAIT_MS)

    def suggestions(self, field: str) -> list[str]:
        """Return what the drop-down of a field has."""
        self._field(field).wait_for(timeout=WAIT_MS)
        options = self._tab.locator(f'datalist[id="list_{field}"] option')
        return [str(each.get_attribute("value")) for each in options.all()]

    def fill(self, **fields: object) -> None:
        for name, value in fields.items():
            self._field(name).fill(str(value), timeout=WAIT_MS)

    def submit(self) -> None:
        self._submit.click(timeout=WAIT_MS)

    def _field(self, name: str) -> Locator:
        return self._tab.locator(f'[name="element_{name}"]').first

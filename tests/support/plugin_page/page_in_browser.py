"""The page of the plugin in a Chromium, and what a reader does with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from playwright.sync_api import Frame, Locator, Page

from support.plugin_page.canned_server import CannedServer

T = TypeVar("T")

WAIT_S = 10
POLL_MS = 50

LISTENERS = """
window.violations = [];
window.failures = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
addEventListener("error", (event) => failures.push(event.message));
addEventListener("unhandledrejection", (event) => failures.push(String(event.reason)));
"""
"""Run in each document before its own scripts: keeps violations of its content security policy, and its errors."""


class PageInBrowser:
    """The page in a tab: in its main frame, or in one as Airflow's."""

    def __init__(self, tab: Page, server: CannedServer) -> None:
        self.tab = tab
        self.server = server
        self.frame: Frame = tab.main_frame
        tab.add_init_script(LISTENERS)

    def open(self, view: str = "#/transforms", *, query: str = "", width: int = 1300, framed: bool = False) -> None:
        """Load the page, in a frame as Airflow's where ``framed``, and wait for its first rows."""
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.tab.goto("about:blank")  # a document of its own, also where only the view is another one
        prefix = "/plugin/wasmline" if framed else ""
        self.tab.goto(f"{self.server.url}{prefix}/wasmline/page{query}{view}")
        self.frame = self._inner() if framed else self.tab.main_frame
        self.wait(lambda: self.all("main .view > *"))

    def show(self, view: str) -> None:
        """Go to a view, and wait for its details."""
        self.script("location.hash = arguments[0]", view)
        self.wait(lambda: self.all("main h1") and "Reading" not in self.text("main"))

    def refresh(self) -> None:
        """Have everything read at once that is read from time to time: a document that was hidden and is seen does."""
        self.script("document.dispatchEvent(new Event('visibilitychange'))")

    def script(self, source: str, *arguments: Any) -> Any:
        """Run the body of a function in the page; what it returns is awaited."""
        return self.frame.evaluate(f"(all) => (function () {{ {source} }}).apply(window, all)", list(arguments))

    def find(self, selector: str) -> Locator:
        return self.frame.locator(selector).first

    def all(self, selector: str) -> list[Locator]:
        return self.frame.locator(selector).all()

    def text(self, selector: str) -> str:
        """Return an element's text, read at once: it may be drawn anew meanwhile."""
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def button(self, label: str, within: str = "body") -> Locator:
        return self.find(within).locator(f'button:text-is("{label}")').first

    def keys(self, *keys: str) -> None:
        """Press keys, one after the other, at whatever has the focus."""
        for key in keys:
            self.tab.keyboard.press(key)

    def wait(self, condition: Callable[[], T]) -> T:
        """Return the condition's first true value."""
        deadline = time.monotonic() + WAIT_S
        while not (found := condition()):
            assert time.monotonic() < deadline, self.text("body")
            self.tab.wait_for_timeout(POLL_MS)
        return found

    def _inner(self) -> Frame:
        element = self.tab.wait_for_selector("iframe", state="attached")
        assert element is not None
        frame = element.content_frame()
        assert frame is not None
        return frame

"""The page of the plugin in a Chromium, and what a reader does with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from support.plugin_page.canned_server import CannedServer

T = TypeVar("T")

WAIT_S = 10

LISTENERS = """
window.violations = [];
window.failures = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
addEventListener("error", (event) => failures.push(event.message));
addEventListener("unhandledrejection", (event) => failures.push(String(event.reason)));
"""
"""Run in each document before its own scripts."""


def listen(browser: Chrome) -> None:
    """Have each document keep violations of its content security policy, and errors of its scripts."""
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LISTENERS})


class PageInBrowser:
    def __init__(self, browser: Chrome, server: CannedServer) -> None:
        self.browser = browser
        self.server = server

    def open(self, view: str = "#/transforms", *, query: str = "", width: int = 1300, framed: bool = False) -> None:
        """Load the page, in a frame as Airflow's where ``framed``, and wait for its first rows."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.browser.get("about:blank")  # a document of its own, also where only the view is another one
        self.browser.get(self.server.url + ("/frame" if framed else f"/wasmline/page{query}{view}"))
        if framed:
            self.browser.switch_to.frame(self.find("iframe"))
        self.wait(lambda: self.all("main .view > *"))

    def show(self, view: str) -> None:
        """Go to a view, and wait for its details."""
        self.script("location.hash = arguments[0]", view)
        self.wait(lambda: self.all("main h1") and "Reading" not in self.text("main"))

    def refresh(self) -> None:
        """Have everything read at once that is read from time to time: a document that was hidden and is seen does."""
        self.script("document.dispatchEvent(new Event('visibilitychange'))")

    def script(self, source: str, *arguments: Any) -> Any:
        return self.browser.execute_script(source, *arguments)

    def find(self, selector: str) -> WebElement:
        return self.wait(lambda: self.all(selector))[0]

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Return an element's text, read at once: it may be drawn anew meanwhile."""
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def button(self, label: str, within: str = "") -> WebElement:
        return self.wait(lambda: [each for each in self.all(f"{within} button") if each.text == label])[0]

    def keys(self, *keys: str) -> None:
        """Press keys, one after the other, at whatever has the focus."""
        ActionChains(self.browser).send_keys(*keys).perform()

    def wait(self, condition: Callable[[], T]) -> T:
        """Return the condition's first true value."""
        found: T = WebDriverWait(self.browser, WAIT_S, poll_frequency=0.05).until(lambda _: condition())
        return found

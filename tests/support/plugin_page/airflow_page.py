"""The page inside a real Airflow, as a user of it sees it in a browser."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, FloatRect, FrameLocator, Locator, Page, ViewportSize, expect

WAIT_MS = 60_000


class AirflowPage:
    """A user's tab of Airflow with the page in its frame.

    :param pictures: the folder of its screenshots.
    """

    width = 1_400
    height = 900

    def __init__(self, browser: Browser, url: str, pictures: Path) -> None:
        size = ViewportSize(width=self.width, height=self.height)
        context = self.context = browser.new_context(viewport=size, color_scheme="light")
        context.set_default_timeout(WAIT_MS)
        self.tab: Page = context.new_page()
        self.url = url
        self.frame: FrameLocator = self.tab.frame_locator('iframe[title="Wasmline"]')
        self._pictures = pictures

    def sign_in(self, user: str, password: str) -> None:
        """Sign in by Airflow's form."""
        self.tab.goto(self.url)
        self.tab.locator('[name="username"]').fill(user)
        self.tab.locator('[name="password"]').fill(password)
        self.tab.get_by_role("button", name="Sign in").click()
        expect(self.tab).not_to_have_url(re.compile("/auth/login"), timeout=WAIT_MS)

    def open(self, view: str) -> None:
        """Open a view such as ``#/jobs`` by its address."""
        self.tab.goto(f"{self.url}/plugin/wasmline/wasmline/page{view}")
        self.tab.reload()  # where only the part after # is another one, the browser loads nothing
        expect(self.see("main h1")).to_be_attached(timeout=WAIT_MS)

    def see(self, selector: str) -> Locator:
        """Return the first element of a selector in the page."""
        return self.frame.locator(selector).first

    def row(self, name: str) -> Locator:
        """Return the row of a transform, job or model in a list."""
        return self.frame.locator("tbody tr").filter(has=self.frame.locator(f'th a:text-is("{name}")')).first

    def fact(self, name: str) -> Locator:
        """Return the value of a fact of a thing's page."""
        return (
            self.frame.locator("dl.facts > div")
            .filter(has=self.frame.locator(f'dt:text-is("{name}")'))
            .locator("dd")
            .first
        )

    def shows(self, locator: Locator, text: str | re.Pattern[str]) -> None:
        """Wait until an element has a text."""
        expect(locator).to_contain_text(text, timeout=WAIT_MS)

    def press(self, label: str) -> None:
        self.frame.locator(f'main button:text-is("{label}")').first.click()

    def confirm(self, label: str, reason: str | None = None) -> None:
        """Say why in the dialog, and do what it asks about; return once it says that this was done."""
        if reason is not None:
            self.see("dialog textarea").fill(reason)
        self.see(f'dialog button.primary:text-is("{label}")').click()
        expect(self.see("dialog")).not_to_be_visible(timeout=WAIT_MS)

    def picture(self, name: str, *, height: int = height) -> None:
        """Take a screenshot of the upper part of the tab."""
        self.tab.wait_for_timeout(500)
        clip = FloatRect(x=0, y=0, width=self.width, height=height)
        self.tab.screenshot(path=self._pictures / f"{name}.png", clip=clip)

"""A Chromium without a window, and the forms of Airflow's web interface in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import element_to_be_clickable, presence_of_element_located
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

DRIVER = shutil.which("chromedriver")

WAIT_S = 60

ARGUMENTS = (
    "--headless=new",
    "--window-size=1300,1600",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """Yield a browser with an empty profile in ``folder``."""
    assert CHROMIUM is not None
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*ARGUMENTS, f"--user-data-dir={folder}"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's own does not start as root
    browser = Chrome(options=options, service=Service(DRIVER))
    try:
        yield browser
    finally:
        browser.quit()


class TriggerForm:
    """The form with which a user triggers a DAG."""

    def __init__(self, browser: Chrome, url: str, dag: str) -> None:
        self._browser = browser
        self._wait = WebDriverWait(browser, WAIT_S)
        browser.get(f"{url}/dags/{dag}")
        self._clickable('[data-testid="trigger-dag-button"]').click()
        self._clickable('[data-testid="trigger-dag-submit"]', enabled=False)

    def suggestions(self, field: str) -> list[str]:
        """Return what the drop-down of a field has."""
        self._field(field)
        options = self._browser.find_elements(By.CSS_SELECTOR, f'datalist[id="list_{field}"] option')
        return [str(each.get_attribute("value")) for each in options]

    def fill(self, **fields: object) -> None:
        for name, value in fields.items():
            field = self._field(name)
            field.send_keys(Keys.CONTROL + "a", Keys.DELETE)
            field.send_keys(str(value))

    def submit(self) -> None:
        self._clickable('[data-testid="trigger-dag-submit"]').click()

    def _field(self, name: str) -> WebElement:
        found: WebElement = self._wait.until(presence_of_element_located((By.NAME, f"element_{name}")))
        return found

    def _clickable(self, selector: str, *, enabled: bool = True) -> WebElement:
        condition = element_to_be_clickable if enabled else presence_of_element_located
        found: WebElement = self._wait.until(condition((By.CSS_SELECTOR, selector)))
        return found

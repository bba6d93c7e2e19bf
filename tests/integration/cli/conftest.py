"""Commands that a test runs in its own process leave the settings of that process as they are."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wasmline.cli.worker.collect_rarely", lambda: None)

"""What histories set in the environment of this process ends with their test."""

from __future__ import annotations

import pytest

from wasmline.kafka.config import VARIABLE


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the settings of the cluster, which a history replaces."""
    monkeypatch.setenv(VARIABLE, "{}")

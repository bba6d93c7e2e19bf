"""The fixture of this folder: its tests run our code on the twins."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from support.simulation.world import install


@pytest.fixture(scope="module", autouse=True)
def bound() -> Iterator[None]:
    """Bind our code to the twins."""
    patch = pytest.MonkeyPatch()
    install(patch)
    logging.disable(logging.CRITICAL)
    gc.freeze()
    yield
    gc.unfreeze()
    logging.disable(logging.NOTSET)
    patch.undo()

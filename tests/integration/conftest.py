"""Guests that are built with Redpanda's own SDKs, once per run of the tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from wasmline.build import build, load_project
from wasmline.errors import ToolchainMissing
from wasmline.wasm import CompiledTransform, TransformRuntime

GUESTS = Path(__file__).parents[2] / "wasm_modules/guests"


@pytest.fixture(scope="session")
def sdk_guest() -> Callable[[str, str], CompiledTransform]:
    """Return a function of a guest's name and language; it skips the test where the language's toolchain is absent."""

    @functools.cache
    def compiled(name: str, language: str) -> CompiledTransform:
        try:
            report = build(load_project(GUESTS / name / language))
        except ToolchainMissing as missing:
            pytest.skip(str(missing))
        return TransformRuntime().compile(Path(report.path).read_bytes())

    return compiled

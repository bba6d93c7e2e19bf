"""Guests that are built with Redpanda's own SDKs, the Java library's JVM, and jobs of leases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.java_peer.java_peer import JavaPeer
from support.leases.lease_harness import Harnesses, made
from wasmline.build import build, load_project
from wasmline.errors import ToolchainMissing
from wasmline.testing.kafka import RunningKafka
from wasmline.wasm import CompiledTransform, TransformRuntime

GUESTS = Path(__file__).parents[2] / "wasm_modules/guests"


@pytest.fixture(scope="session")
def sdk_guest() -> Callable[[str, str], CompiledTransform]:
    """Return a function of a guest's name and language; it skips the test where the language's toolchain is absent."""

    @functools.cache
    def compiled(name: str, language: str) -> CompiledTransform:
        try:
            report = build(load_project(GUESTS / name / language), allow_build_scripts=True)  # its SDK has one
        except ToolchainMissing as missing:
            pytest.skip(str(missing))
        return TransformRuntime().compile(Path(report.path).read_bytes())

    return compiled


@pytest.fixture(scope="session")
def java_peer(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    """Return Confluent's Parallel Consumer in a JVM, on the broker of the tests."""
    with JavaPeer(kafka.bootstrap_servers, tmp_path_factory.mktemp("java") / "peer.log") as peer:
        yield peer


@pytest.fixture
def harnesses(kafka: RunningKafka, tmp_path: Path) -> Iterator[Harnesses]:
    """Yield what makes jobs of leases on the broker of the tests; they are closed at the end."""
    with made(kafka.config, tmp_path) as make:
        yield make

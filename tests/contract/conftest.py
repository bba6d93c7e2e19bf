"""Each test of this folder that asks for a ``cluster`` runs on the twin in memory and on a real Kafka."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from support.consumers.clusters import Cluster, Kafka, Memory
from support.consumers.running_consumer import Ledger


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest) -> Kafka:
    return Kafka(request.getfixturevalue("kafka"))


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        return Memory()
    kafka = request.getfixturevalue("real_cluster")
    assert isinstance(kafka, Kafka)
    return kafka


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4()}"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """A gate that handlers may wait at; it opens at the end of the test at the latest."""
    gate = threading.Event()
    yield gate
    gate.set()

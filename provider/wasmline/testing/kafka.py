"""pytest fixtures over a real Kafka: ``pytest_plugins = ["wasmline.testing.kafka"]`` in the top conftest.py.

    def test_the_topic_is_read_to_its_end(kafka):
        topic = kafka.topic(partitions=3)
        produce_all(kafka.config, topic, [(b"key", b"value", None, None)])
        assert len(list(read_to_end(kafka.config, topic))) == 1

The first run downloads the broker's jars, once per machine.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from wasmline.kafka import KafkaConfig, Topics
from wasmline.local import LocalKafka, SaslSsl
from wasmline.local.security import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningKafka:
    """A broker or cluster that runs for the tests, with its client settings."""

    local: LocalKafka
    config: KafkaConfig

    @property
    def bootstrap_servers(self) -> str:
        return self.config.bootstrap_servers

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic with a unique name, and return the name; a ``_`` in a setting stands for a dot."""
        name = f"test-{uuid.uuid4()}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        Topics(self.config).create(name, partitions, config=settings)
        return name


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """One node for the whole test run; take topics and groups of unique names."""
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as local:
        yield _running(local)


@pytest.fixture(scope="module")
def stoppable_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """One node for the tests of a module, which may stop it and start it again."""
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as local:
        yield _running(local)


@pytest.fixture(scope="module")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], RunningKafka]]:
    """A factory of clusters of three nodes, for tests that stop some; they end with the module."""
    with ExitStack() as running:
        yield lambda: _running(running.enter_context(LocalKafka(tmp_path_factory.mktemp("kafka"), nodes=3)))


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningKafka]]:
    """A factory ``secured_kafka(mechanism="PLAIN")`` of SASL_SSL brokers, one per mechanism. Needs trustme."""
    started: dict[str, RunningKafka] = {}
    with ExitStack() as running:

        def secured(mechanism: Mechanism = "PLAIN") -> RunningKafka:
            if mechanism not in started:
                folder = tmp_path_factory.mktemp("kafka")
                security, client = _credentials(folder, mechanism)
                local = running.enter_context(LocalKafka(folder / "data", security=security))
                started[mechanism] = _running(local, client)
            return started[mechanism]

        yield secured


def _running(local: LocalKafka, client: dict[str, str] | None = None) -> RunningKafka:
    config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers, **(client or {})})
    return RunningKafka(local=local, config=config)


def _credentials(folder: Path, mechanism: Mechanism) -> tuple[SaslSsl, dict[str, str]]:
    """Create an authority, a server certificate and a user; return the broker's and the client's settings."""
    import trustme

    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "server.pem").write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
    (folder / "server.key").write_bytes(pkcs8_key(server.private_key_pem.bytes()))
    user, password = "analyst", 'pass "word" \\ with = signs; and €'
    security = SaslSsl(
        mechanism=mechanism,
        users={user: password},
        certificate=folder / "server.pem",
        key=folder / "server.key",
    )
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    return security, client


def pkcs8_key(pem: bytes) -> bytes:
    """Return a private key in the only format that Java reads."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

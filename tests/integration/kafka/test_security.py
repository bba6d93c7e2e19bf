"""TLS and passwords, for librdkafka and, with the same configuration translated, for a real Java client."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from support.leases.lease_harness import EXACTLY_ONCE, LeaseHarness
from wasmline.errors import BrokerUnavailable, InvalidKafkaConfig, KafkaError
from wasmline.kafka import CompactedTopic, KafkaConfig, Topics, attempts, produce_all, read_to_end
from wasmline.kafka.transaction_requests import TransactionRequests
from wasmline.local import LocalKafka, SaslSsl, find_java, kafka_jars
from wasmline.local.security import Mechanism
from wasmline.local.server_properties import JVM_OPTIONS, properties_text
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition

MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256")


def ask_with_java(config: KafkaConfig, topic: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Describe a topic with the one command-line tool that is among the broker's jars: a Java AdminClient."""
    properties = folder / "client.properties"
    properties.write_text(properties_text(config.java()))
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", config.bootstrap_servers]
    question = ["--command-config", str(properties), "--describe", "--entity-type", "topics", "--entity-name", topic]
    command = [str(find_java().path), *JVM_OPTIONS, "-cp", ":".join(map(str, kafka_jars())), *tool, *question]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_go_through_a_secured_listener(secured_kafka: Any, mechanism: Mechanism) -> None:
    kafka: RunningKafka = secured_kafka(mechanism)
    topic = kafka.topic()
    produce_all(kafka.config, topic, [(b"key", b"value", None, None)])
    assert [message.value() for message in read_to_end(kafka.config, topic)] == [b"value"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_java_client_gets_in_with_the_translated_configuration(
    secured_kafka: Any, mechanism: Mechanism, tmp_path: Path
) -> None:
    kafka: RunningKafka = secured_kafka(mechanism)
    topic = kafka.topic(retention_ms="123456")
    answer = ask_with_java(kafka.config, topic, tmp_path)
    assert "retention.ms=123456" in answer.stdout, answer.stderr


def test_leases_write_exactly_once_through_a_secured_listener(secured_kafka: Any, tmp_path: Path) -> None:
    kafka: RunningKafka = secured_kafka("PLAIN")
    with LeaseHarness(kafka.config, tmp_path, **EXACTLY_ONCE) as harness:
        harness.produce(300)
        with harness.letting(slots=1):
            harness.finish()
        assert harness.committed() == 300


def test_a_java_client_is_turned_away_with_another_password(secured_kafka: Any, tmp_path: Path) -> None:
    kafka: RunningKafka = secured_kafka("PLAIN")
    wrong = KafkaConfig({**kafka.config.properties, "sasl.password": "wrong"})
    assert "SaslAuthenticationException" in ask_with_java(wrong, "any", tmp_path).stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_from_a_broker_that_is_down(
    secured_kafka: Any, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "ATTEMPT_TIMEOUT_S", 1.0)
    kafka: RunningKafka = secured_kafka(mechanism)
    wrong = KafkaConfig({**kafka.config.properties, "sasl.password": "wrong"})
    topics, table = Topics(wrong), CompactedTopic(wrong, "table")
    for ask in (topics.brokers, partial(topics.describe, "any"), table.read):
        with pytest.raises(KafkaError, match=r"(?i)refused the connection.*authentication") as caught:
            ask()
        assert not isinstance(caught.value, BrokerUnavailable)
        assert not caught.value.retryable


def test_an_authority_that_is_not_known_is_told_from_a_broker_that_is_down(secured_kafka: Any, tmp_path: Path) -> None:
    kafka: RunningKafka = secured_kafka("PLAIN")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "stranger.pem"))
    wrong = KafkaConfig({**kafka.config.properties, "ssl.ca.location": str(tmp_path / "stranger.pem")})
    with pytest.raises(KafkaError, match=r"refused the connection.*certificate verify failed"):
        Topics(wrong).brokers()


def test_passwords_are_in_no_file_that_others_can_read(secured_kafka: Any) -> None:
    kafka: RunningKafka = secured_kafka("PLAIN")
    node = kafka.local.folder / "node-1"
    for name in ("server.properties", "keystore.pem"):
        assert (node / name).stat().st_mode & 0o077 == 0
    logs = (node / "broker.log").read_text() + (node / "format.log").read_text()
    assert 'pass "word"' not in logs


def test_client_certificates_work_for_both_clients(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1")
        (tmp_path / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
        open_key = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, open_key)
        (tmp_path / f"{name}.key").write_bytes(pem)
    security = SaslSsl(
        mechanism="PLAIN",
        users={"eve": "word"},
        certificate=tmp_path / "server.pem",
        key=tmp_path / "server.key",
        client_ca=tmp_path / "ca.pem",
    )
    with LocalKafka(tmp_path / "kafka", security=security) as kafka:
        anonymous = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "eve",
            "sasl.password": "word",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
        }
        identity = {
            "ssl.certificate.location": str(tmp_path / "client.pem"),
            "ssl.key.location": str(tmp_path / "client.key"),
        }
        known = KafkaConfig({**anonymous, **identity})
        Topics(known).create("certified", 1)
        answer = ask_with_java(known, "certified", tmp_path)
        assert "certified" in answer.stdout, answer.stderr
        with pytest.raises(KafkaError):
            Topics(KafkaConfig(anonymous), timeout=5).brokers()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_requests_go_through_a_secured_listener(secured_kafka: Any, mechanism: Mechanism) -> None:
    kafka: RunningKafka = secured_kafka(mechanism)
    topic = kafka.topic(2)
    with TransactionRequests(kafka.config, 20) as requests:
        assert requests.open_transactions([TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): []}
        assert requests.describe(f"nobody-{topic}") is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_requests_are_turned_away_with_another_password(secured_kafka: Any, mechanism: Mechanism) -> None:
    kafka: RunningKafka = secured_kafka(mechanism)
    wrong = KafkaConfig({**kafka.config.properties, "sasl.password": "wrong"})
    with TransactionRequests(wrong, 20) as requests, pytest.raises(KafkaError, match=r"(?i)authentication") as caught:
        requests.describe("any")
    assert not isinstance(caught.value, BrokerUnavailable)


def test_our_own_requests_trust_the_named_authority_only(secured_kafka: Any, tmp_path: Path) -> None:
    kafka: RunningKafka = secured_kafka("PLAIN")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "stranger.pem"))
    wrong = KafkaConfig({**kafka.config.properties, "ssl.ca.location": str(tmp_path / "stranger.pem")})
    with TransactionRequests(wrong, 20) as requests, pytest.raises(KafkaError, match="certificate") as caught:
        requests.describe("any")
    assert not isinstance(caught.value, BrokerUnavailable)


OIDC = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "ada",
    "sasl.oauthbearer.client.secret": "word",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
}


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("sasl.mechanism", OIDC),
        ("ssl.keystore.location", {"ssl.keystore.location": "/store.p12"}),
        ("ssl.cipher.suites", {"ssl.cipher.suites": "x"}),
    ],
)
def test_our_own_requests_are_never_less_safe_than_asked(key: str, settings: dict[str, str]) -> None:
    config = KafkaConfig(
        {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    )
    unspoken = KafkaConfig({**config.properties, **settings})
    with TransactionRequests(unspoken, 1) as requests, pytest.raises(InvalidKafkaConfig) as caught:
        requests.describe("any")
    assert caught.value.key == key

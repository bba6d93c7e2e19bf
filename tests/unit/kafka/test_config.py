from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from wasmline.errors import InvalidKafkaConfig
from wasmline.kafka import KafkaConfig, producer

SERVERS = {"bootstrap.servers": "broker:9092"}


def test_secrets_are_in_no_text_that_could_be_logged() -> None:
    secrets = {
        "sasl.password": "hush-1",
        "ssl.key.password": "hush-2",
        "ssl.key.pem": "hush-3",
        "ssl.keystore.password": "hush-4",
        "sasl.oauthbearer.client.secret": "hush-5",
        "sasl.oauthbearer.config": "hush-6",
        "sasl.oauthbearer.assertion.private.key.passphrase": "hush-7",
        "sasl.oauthbearer.assertion.private.key.pem": "hush-8",
    }
    config = KafkaConfig({**SERVERS, "sasl.username": "eve", **secrets})
    for text in (repr(config), str(config), f"{config}", repr([config])):
        assert "hush" not in text
        assert "eve" in text


def test_bootstrap_servers_are_mandatory() -> None:
    with pytest.raises(InvalidKafkaConfig, match=r"bootstrap\.servers") as caught:
        KafkaConfig({"client.id": "x"})
    assert caught.value.key == "bootstrap.servers"


@pytest.mark.parametrize("key", ["error_cb", "oauth_cb", "logger", "on_delivery", "plugin.library.paths"])
def test_code_is_refused(key: str) -> None:
    with pytest.raises(InvalidKafkaConfig) as caught:
        KafkaConfig({**SERVERS, key: "module.function"})
    assert caught.value.key == key


def test_values_of_a_json_document_become_text() -> None:
    config = KafkaConfig.of({**SERVERS, "enable.idempotence": True, "linger.ms": 5})
    assert config.properties == {**SERVERS, "enable.idempotence": "true", "linger.ms": "5"}


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidKafkaConfig) as caught:
        KafkaConfig.of({**SERVERS, "client.id": value})
    assert caught.value.key == "client.id"


def test_a_configuration_survives_json_and_pickle() -> None:
    config = KafkaConfig({**SERVERS, "sasl.password": 'quote " and €'})
    assert KafkaConfig.from_json(config.to_json()) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_later_change_of_the_given_dictionary_changes_nothing() -> None:
    given = dict(SERVERS)
    config = KafkaConfig(given)
    given["bootstrap.servers"] = "elsewhere:1"
    assert config.bootstrap_servers == "broker:9092"


def test_overrides_win_and_the_client_is_quiet() -> None:
    config = KafkaConfig({**SERVERS, "client.id": "mine"})
    defaults = {"log_level": "0", "reconnect.backoff.max.ms": "1000"}
    assert config.client(**{"client.id": "yours"}) == {**SERVERS, **defaults, "client.id": "yours"}
    assert KafkaConfig({**SERVERS, "log_level": "7"}).client()["log_level"] == "7"


@pytest.mark.parametrize(
    ("first", "longest"),
    [("0", "1000"), ("50", "1000"), ("2000", "2000"), ("20000", "20000"), (" +2000", "2000"), ("0x7d0", "2000")],
)
def test_a_first_pause_before_connecting_again_is_no_longer_than_the_longest(first: str, longest: str) -> None:
    config = KafkaConfig({**SERVERS, "reconnect.backoff.ms": first})
    assert config.client()["reconnect.backoff.max.ms"] == longest
    assert KafkaConfig(SERVERS).client(**{"reconnect.backoff.ms": first})["reconnect.backoff.max.ms"] == longest
    producer(config).close()


def test_a_pause_that_is_no_number_is_refused_by_the_client_itself() -> None:
    with pytest.raises(InvalidKafkaConfig, match=r"reconnect\.backoff\.ms"):
        producer(KafkaConfig({**SERVERS, "reconnect.backoff.ms": "²"}))


def test_the_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WASMLINE_KAFKA_CONFIG", raising=False)
    path = tmp_path / "kafka.json"
    path.write_text(json.dumps({"bootstrap.servers": "file:1"}))
    monkeypatch.setenv("WASMLINE_KAFKA_CONFIG_FILE", str(path))
    assert KafkaConfig.from_environment().bootstrap_servers == "file:1"
    monkeypatch.setenv("WASMLINE_KAFKA_CONFIG", json.dumps({"bootstrap.servers": "variable:1"}))
    assert KafkaConfig.from_environment().bootstrap_servers == "variable:1"


def test_an_environment_without_kafka_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WASMLINE_KAFKA_CONFIG", raising=False)
    monkeypatch.delenv("WASMLINE_KAFKA_CONFIG_FILE", raising=False)
    with pytest.raises(InvalidKafkaConfig, match="WASMLINE_KAFKA_CONFIG="):
        KafkaConfig.from_environment()


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WASMLINE_KAFKA_CONFIG", raising=False)
    monkeypatch.setenv("WASMLINE_KAFKA_CONFIG_FILE", str(tmp_path / "absent.json"))
    with pytest.raises(InvalidKafkaConfig, match=r"absent\.json: No such file"):
        KafkaConfig.from_environment()


@pytest.mark.parametrize("text", ['{"sasl.password": "hush"', '["hush"]', '"hush"'])
def test_malformed_json_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(InvalidKafkaConfig) as caught:
        KafkaConfig.from_json(text)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None

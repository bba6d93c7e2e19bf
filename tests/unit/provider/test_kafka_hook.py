"""What is read of a ``kafka`` connection, and what is not."""

import json
from typing import Any

import pytest

from wasmline.errors import InvalidKafkaConfig
from wasmline_provider.hooks.kafka import KafkaHook

SECURED = {
    "bootstrap.servers": "broker:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "user",
    "sasl.password": "hunter2",
    "ssl.ca.location": "/etc/ca.pem",
    "enable.ssl.certificate.verification": True,
    "socket.timeout.ms": 5000,
}


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def connect(extra: dict[str, Any]) -> KafkaHook:
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TEST", json.dumps({"conn_type": "kafka", "extra": extra}))
        return KafkaHook("kafka_test")

    return connect


def test_the_cluster_s_settings_are_taken_as_text(connect: Any) -> None:
    config = connect(SECURED).get_conn()
    assert config.properties == {
        **SECURED,
        "enable.ssl.certificate.verification": "true",
        "socket.timeout.ms": "5000",
    }


def test_settings_of_a_consumer_stay_unread(connect: Any) -> None:
    config = connect({**SECURED, "group.id": "theirs", "auto.offset.reset": "latest", "plugin.library.paths": "x.so"})
    assert not {"group.id", "auto.offset.reset", "plugin.library.paths"} & config.get_conn().properties.keys()


@pytest.mark.parametrize("name", ["oauth_cb", "error_cb", "on_commit"])
def test_a_callback_is_refused_by_name(connect: Any, name: str) -> None:
    with pytest.raises(InvalidKafkaConfig, match=name):
        connect({**SECURED, name: "os.system"}).get_conn()


def test_a_connection_without_a_cluster_is_refused(connect: Any) -> None:
    with pytest.raises(InvalidKafkaConfig, match=r"kafka_test has no bootstrap\.servers"):
        connect({"security.protocol": "SSL"}).get_conn()


def test_no_secret_is_shown(connect: Any) -> None:
    hook = connect(SECURED)
    assert "hunter2" not in repr(hook.get_conn())
    assert "hunter2" not in repr(vars(hook))

"""What is read of a ``kafka`` connection, and what is not."""

import json
from typing import Any

import pytest

from wasmline.errors import InvalidKafkaConfig
from wasmline_provider.hooks.kafka import KafkaHook, _warn_of_unread

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


def test_each_setting_that_is_not_used_is_named_in_one_warning_without_its_value(
    connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _warn_of_unread.cache_clear()
    secret = {"ssl.truststore.password": "hunter3", "group.id": "theirs", "a\nb": "x"}
    hook = connect({**SECURED, **secret})
    for _ in range(2):
        hook.get_settings()
    (warning,) = caplog.records
    assert (warning.levelname, warning.getMessage()) == (
        "WARNING",
        (
            "connection kafka_test: settings other than those of the cluster's address and security are not used: "
            "'a\\nb', 'group.id', 'ssl.truststore.password'"
        ),
    )
    assert "hunter3" not in caplog.text


def test_a_connection_without_other_settings_warns_of_nothing(connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    connect(SECURED).get_conn()
    assert not caplog.records


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"sasl.kerberos.keytab": "/k"}, r"sasl\.kerberos\.keytab is a setting of Kerberos, .* use SCRAM-SHA-512"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism is AWS_MSK_IAM: IAM of Amazon MSK, .*; use SCRAM-SHA-512"),
        ({"sasl.mechanism": ["PLAIN"]}, "sasl.mechanism is .*: unknown to Kafka's clients"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.method must be oidc: .* SCRAM-SHA-512"),
    ],
)
def test_a_login_that_not_all_clients_have_is_refused_with_another(
    connect: Any, setting: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidKafkaConfig, match=f"^connection kafka_test: {told}"):
        connect({**SECURED, **setting}).get_settings()


def test_openid_connect_is_passed_on(connect: Any) -> None:
    oidc = {f"sasl.oauthbearer.{name}": name for name in ("client.id", "client.secret", "token.endpoint.url", "scope")}
    oidc |= {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    config = connect({"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", **oidc}).get_conn()
    assert config.properties.items() >= oidc.items()
    assert config.java()["sasl.mechanism"] == "OAUTHBEARER"


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

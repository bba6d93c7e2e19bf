"""Logins that every client has are served; others are refused in one line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from wasmline.cli import main
from wasmline.errors import InvalidKafkaConfig
from wasmline.kafka import KafkaConfig
from wasmline.kafka.java_properties import LOGIN_MODULES
from wasmline.kafka_login import PASSWORD_MECHANISMS

SASL = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL"}
OAUTH = "sasl.oauthbearer."
OIDC = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    f"{OAUTH}method": "oidc",
    f"{OAUTH}client.id": "ada",
    f"{OAUTH}client.secret": "hunter2",
    f"{OAUTH}token.endpoint.url": "https://idp/token",
}


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in OIDC.items() if key != OAUTH + name}


@pytest.mark.parametrize(
    ("settings", "key", "told"),
    [
        (SASL, "sasl.mechanism", "is missing, and the default GSSAPI: Kerberos"),
        ({**SASL, "sasl.mechanisms": "GSSAPI"}, "sasl.mechanism", "is GSSAPI: Kerberos, which the wheels"),
        ({**SASL, "sasl.kerberos.kinit.cmd": "rm"}, "sasl.kerberos.kinit.cmd", "is a setting of Kerberos"),
        ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism", "is AWS_MSK_IAM: IAM of Amazon MSK"),
        ({**SASL, "sasl.mechanism": "scram"}, "sasl.mechanism", "is scram: unknown to Kafka's clients"),
        (without("method"), f"{OAUTH}method", "must be oidc"),
        (without("client.id"), f"{OAUTH}client.id", "is missing, and OAUTHBEARER needs it"),
        (without("client.secret"), f"{OAUTH}client.secret", "is missing"),
        (without("token.endpoint.url"), f"{OAUTH}token.endpoint.url", "is missing"),
        ({**OIDC, f"{OAUTH}grant.type": "jwt-bearer"}, f"{OAUTH}grant.type", "must be client_credentials"),
        (
            {**OIDC, f"{OAUTH}assertion.file": "f"},
            f"{OAUTH}assertion.file",
            "has no counterpart in Spark's Java client",
        ),
        ({**OIDC, f"{OAUTH}config": "hunter2"}, f"{OAUTH}config", "has no counterpart"),
        ({**OIDC, "https.ca.location": "/ca"}, "https.ca.location", "has no counterpart in Spark's Java client"),
        ({**OIDC, "https.ca.pem": "hunter2"}, "https.ca.pem", "has no counterpart in Spark's Java client"),
        (
            {**SASL, "sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"},
            "sasl.mechanism",
            "and sasl.mechanisms are one setting, and have two values",
        ),
        (
            {**OIDC, f"{OAUTH}client.credentials.client.secret": "hunter3"},
            f"{OAUTH}client.secret",
            f"and {OAUTH}client.credentials.client.secret are one setting",
        ),
    ],
)
def test_a_login_that_not_all_clients_have_is_refused_by_name_in_one_line(
    settings: dict[str, str], key: str, told: str
) -> None:
    with pytest.raises(InvalidKafkaConfig) as caught:
        KafkaConfig(settings)
    text = str(caught.value)
    assert caught.value.key == key
    assert text.startswith(f"{key} {told}")
    assert "\n" not in text
    assert "hunter2" not in text


@pytest.mark.parametrize("protocol", [{}, {"security.protocol": "ssl"}, {"security.protocol": "PLAINTEXT"}])
@pytest.mark.parametrize(
    "left",
    [{"sasl.mechanism": "GSSAPI"}, {"sasl.mechanisms": "PLAIN", "sasl.mechanism": "x"}, {"sasl.kerberos.keytab": "/k"}],
)
def test_what_has_no_effect_without_sasl_is_a_warning(
    protocol: dict[str, str], left: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    made = KafkaConfig({"bootstrap.servers": "127.0.0.1:1", **protocol, **left})
    assert f"{', '.join(sorted(left))}: without effect" in caplog.text
    assert not [key for key in made.java() if key.startswith("sasl.")]


def test_librdkafka_s_other_names_of_the_credentials_are_the_same_settings() -> None:
    aliases = {
        f"{OAUTH}client.credentials.client.id": "ada",
        f"{OAUTH}client.credentials.client.secret": "hunter2",
    }
    others = {key: value for key, value in OIDC.items() if key not in (f"{OAUTH}client.id", f"{OAUTH}client.secret")}
    assert KafkaConfig({**others, **aliases}) == KafkaConfig(OIDC) == KafkaConfig({**OIDC, **aliases})


def test_the_command_line_refuses_the_same() -> None:
    options = [
        "-X",
        "bootstrap.servers=127.0.0.1:1",
        "-X",
        "security.protocol=SASL_SSL",
        "-X",
        "sasl.kerberos.keytab=/k",
    ]
    refused = CliRunner().invoke(main, ["list", *options])
    assert refused.exit_code == 1
    assert "sasl.kerberos.keytab is a setting of Kerberos" in refused.output


def test_each_login_that_is_served_is_one_of_spark_and_of_librdkafka() -> None:
    assert {*PASSWORD_MECHANISMS, "OAUTHBEARER"} == LOGIN_MODULES.keys()
    for mechanism in PASSWORD_MECHANISMS:
        login = {**SASL, "sasl.mechanism": mechanism, "sasl.username": "ada", "sasl.password": "hunter2"}
        Producer(KafkaConfig(login).client())


class TokenEndpoint(BaseHTTPRequestHandler):
    """Takes note of requests for tokens, and refuses them."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.headers["Authorization"], body))  # type: ignore[attr-defined]
        self.server.asked.set()  # type: ignore[attr-defined]
        self.send_error(401)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Any]:
    with HTTPServer(("127.0.0.1", 0), TokenEndpoint) as server:
        server.requests, server.asked = [], threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("client", [Producer, AdminClient])
def test_a_client_asks_for_its_token_without_a_callback(client: Any, endpoint: Any) -> None:
    url = f"http://127.0.0.1:{endpoint.server_port}/token"
    endpoints = {f"{OAUTH}token.endpoint.url": url, f"{OAUTH}scope": "kafka"}
    made = client(KafkaConfig({**OIDC, **endpoints, "security.protocol": "SASL_PLAINTEXT"}).client())
    assert endpoint.asked.wait(30)
    authorization, body = endpoint.requests[0]
    assert authorization == "Basic YWRhOmh1bnRlcjI="
    assert body == "grant_type=client_credentials&scope=kafka"
    del made

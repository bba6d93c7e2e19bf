from __future__ import annotations

from pathlib import Path

import pytest

from wasmline.errors import InvalidKafkaConfig
from wasmline.kafka import KafkaConfig

SERVERS = {"bootstrap.servers": "broker:9093"}
LOGIN = {"security.protocol": "sasl_ssl", "sasl.username": "eve", "sasl.password": "word"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def java(**settings: str) -> dict[str, str]:
    return KafkaConfig({**SERVERS, **settings}).java()


def refused(**settings: str) -> str:
    with pytest.raises(InvalidKafkaConfig) as caught:
        java(**settings)
    assert caught.value.key in str(caught.value)
    return caught.value.key


def test_a_plain_connection_is_itself() -> None:
    assert java(**{"client.id": "me", "reconnect.backoff.ms": "50"}) == {
        **SERVERS,
        "client.id": "me",
        "reconnect.backoff.ms": "50",
    }


def test_what_concerns_one_client_alone_is_left_out() -> None:
    tuning = {"debug": "broker", "statistics.interval.ms": "1000", "queue.buffering.max.ms": "5", "log_level": "3"}
    roles = {"group.id": "g", "auto.offset.reset": "earliest", "acks": "all", "partitioner": "murmur2_random"}
    assert java(**tuning, **roles) == SERVERS


@pytest.mark.parametrize("key", ["ssl.cipher.suites", "ssl.crl.location", "ssl.engine.location", "no.such.setting"])
def test_what_java_cannot_honour_is_refused_by_name(key: str) -> None:
    assert refused(**{key: "x"}) == key


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN_MODULE), ("SCRAM-SHA-256", SCRAM_MODULE), ("SCRAM-SHA-512", SCRAM_MODULE)]
)
def test_a_password_login_becomes_a_login_module(name: str, mechanism: str, module: str) -> None:
    assert java(**LOGIN, **{name: mechanism}) == {
        **SERVERS,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="eve" password="word";',
    }


def test_quotes_and_backslashes_in_a_password_stay_in_the_password() -> None:
    login = {**LOGIN, "sasl.mechanism": "PLAIN", "sasl.password": '";\\ admin="true'}
    assert java(**login)["sasl.jaas.config"].endswith(r'password="\";\\ admin=\"true";')


def test_a_login_needs_its_parts() -> None:
    assert refused(**{"security.protocol": "SASL_SSL"}) == "sasl.mechanism"
    assert refused(**{"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}) == "sasl.mechanism"
    assert (
        refused(**{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "eve"})
        == "sasl.password"
    )


def test_openid_connect_becomes_the_java_callback_handler() -> None:
    settings = java(
        **{
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "id",
            "sasl.oauthbearer.client.secret": "word",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "cluster=lkc-1,pool=p=1",
        }
    )
    assert settings["sasl.oauthbearer.token.endpoint.url"] == "https://idp/token"
    assert settings["sasl.login.callback.handler.class"].endswith(".OAuthBearerLoginCallbackHandler")
    assert settings["sasl.jaas.config"].endswith(
        ' required clientId="id" clientSecret="word" scope="kafka" extension_cluster="lkc-1" extension_pool="p=1";'
    )


def test_a_token_made_by_application_code_is_refused() -> None:
    assert refused(**{"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}) == "sasl.oauthbearer.method"


def test_the_authority_becomes_a_pem_trust_store(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("certificate")
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    assert java(**{"ssl.ca.location": str(path)}) == {**SERVERS, **store}
    assert java(**{"ssl.ca.location": "probe"}) == SERVERS
    assert java(**{"ssl.ca.pem": "inline"})["ssl.truststore.certificates"] == "inline"


def test_a_folder_of_authorities_is_refused(tmp_path: Path) -> None:
    assert refused(**{"ssl.ca.location": str(tmp_path)}) == "ssl.ca.location"


def test_the_check_of_the_host_name_can_be_turned_off_and_the_certificate_check_cannot() -> None:
    identification = "ssl.endpoint.identification.algorithm"
    assert java(**{identification: "none"})[identification] == ""
    assert java(**{identification: "https"})[identification] == "https"
    assert java(**{"enable.ssl.certificate.verification": "true"}) == SERVERS
    assert refused(**{"enable.ssl.certificate.verification": "false"}) == "enable.ssl.certificate.verification"


def test_a_client_certificate_goes_inline(tmp_path: Path) -> None:
    chain, key = tmp_path / "client.pem", tmp_path / "client.key"
    chain.write_text("chain")
    key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    files = {"ssl.certificate.location": str(chain), "ssl.key.location": str(key), "ssl.key.password": "word"}
    expected = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "chain",
        "ssl.keystore.key": "-----BEGIN ENCRYPTED PRIVATE KEY-----",
        "ssl.key.password": "word",
    }
    assert java(**files) == {**SERVERS, **expected}
    assert java(**{"ssl.certificate.pem": "chain", "ssl.key.pem": key.read_text(), "ssl.key.password": "word"}) == {
        **SERVERS,
        **expected,
    }


def test_half_a_client_certificate_is_refused(tmp_path: Path) -> None:
    assert refused(**{"ssl.certificate.pem": "chain"}) == "ssl.key.location"
    assert refused(**{"ssl.key.pem": "key"}) == "ssl.certificate.location"
    absent = {"ssl.certificate.location": str(tmp_path / "absent"), "ssl.key.pem": "key"}
    assert refused(**absent) == "ssl.certificate.location"


def test_a_key_that_java_cannot_read_is_refused() -> None:
    pem = {"ssl.certificate.pem": "chain", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"}
    assert refused(**pem) == "ssl.key.location"


def test_a_pkcs12_store_is_taken_as_it_is() -> None:
    assert java(**{"ssl.keystore.location": "/keys/a.p12", "ssl.keystore.password": "word"}) == {
        **SERVERS,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/keys/a.p12",
        "ssl.keystore.password": "word",
    }

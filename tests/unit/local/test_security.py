from __future__ import annotations

from pathlib import Path

import pytest

from wasmline.errors import LocalError
from wasmline.local import SaslSsl
from wasmline.local.security import Mechanism
from wasmline.local.server_properties import properties_text

PKCS8 = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


def security(folder: Path, mechanism: Mechanism = "PLAIN", key: str = PKCS8, user: str = "eve") -> SaslSsl:
    (folder / "key.pem").write_text(key)
    (folder / "chain.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    return SaslSsl(
        mechanism=mechanism,
        users={user: 'a"b\\c'},
        certificate=folder / "chain.pem",
        key=folder / "key.pem",
    )


def test_passwords_are_quoted_for_jaas(tmp_path: Path) -> None:
    settings = security(tmp_path).settings("CLIENT", tmp_path / "keystore.pem")
    assert settings["listener.name.client.plain.sasl.jaas.config"].endswith(r'required user_eve="a\"b\\c";')


def test_scram_passwords_reach_no_command_line(tmp_path: Path) -> None:
    arguments = security(tmp_path, "SCRAM-SHA-256").scram_users()
    assert arguments[0] == "--add-scram"
    assert arguments[1].startswith("SCRAM-SHA-256=[name=eve,iterations=4096,salt=")
    assert 'a"b' not in arguments[1]
    assert security(tmp_path, "PLAIN").scram_users() == []


def test_users_are_not_shown(tmp_path: Path) -> None:
    assert "eve" not in repr(security(tmp_path))


@pytest.mark.parametrize(
    "wrong",
    [{"mechanism": "GSSAPI"}, {"user": "eve smith"}, {"key": "-----BEGIN RSA PRIVATE KEY-----"}],
)
def test_what_a_broker_could_not_use_is_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(LocalError):
        security(tmp_path, **wrong)  # type: ignore[arg-type]


def test_properties_keep_every_character() -> None:
    assert properties_text({"k": "a\\b\n\u20ac\U0001f600 ="}) == "k=a\\u005cb\\u000a\\u20ac\\ud83d\\ude00 =\n"

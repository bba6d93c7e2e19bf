"""A listener with TLS and passwords, to test secured clients with a local broker."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wasmline.errors import LocalError

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
SCRAM_ITERATIONS = 4096
USER = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSsl:
    """Clients authenticate by SASL_SSL as one of ``users`` (name to password).

    ``certificate`` is a PEM chain for 127.0.0.1 or localhost, ``key`` its private key as unencrypted PKCS #8 PEM. With
    ``client_ca`` every client must present a certificate signed by this authority. Users of a SCRAM mechanism are
    stored when a folder is formatted: later changes to them need a new folder.
    """

    mechanism: Mechanism
    users: Mapping[str, str] = field(repr=False)
    certificate: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in LOGIN_MODULES:
            raise LocalError(f"mechanism {self.mechanism!r} is not one of {', '.join(LOGIN_MODULES)}")
        if not self.users or not all(USER.fullmatch(user) for user in self.users):
            raise LocalError("at least one user is needed; user names consist of letters, digits and _")
        if not self.key.read_text().lstrip().startswith("-----BEGIN PRIVATE KEY-----"):
            raise LocalError(
                f"{self.key} is not an unencrypted PKCS #8 key: openssl pkcs8 -topk8 -nodes converts others"
            )

    def keystore(self) -> str:
        """Return key and chain in one text, the format of Kafka's PEM key stores (KIP-651)."""
        return f"{self.key.read_text().strip()}\n{self.certificate.read_text().strip()}\n"

    def settings(self, listener: str, keystore: Path) -> dict[str, str]:
        """Return the broker settings of the listener, without the SCRAM users."""
        prefix = f"listener.name.{listener.lower()}."
        settings = {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(keystore),
            f"{prefix}sasl.enabled.mechanisms": self.mechanism,
            f"{prefix}{self.mechanism.lower()}.sasl.jaas.config": self._login(),
        }
        if self.client_ca is not None:
            settings |= {
                f"{prefix}ssl.client.auth": "required",
                f"{prefix}ssl.truststore.type": "PEM",
                f"{prefix}ssl.truststore.location": str(self.client_ca),
            }
        return settings

    def scram_users(self) -> list[str]:
        """Return the arguments that store the users while a folder is formatted; none for PLAIN."""
        if self.mechanism == "PLAIN":
            return []
        users = [f"{self.mechanism}=[name={user},{_salted(self.mechanism, word)}]" for user, word in self.users.items()]
        return [argument for user in users for argument in ("--add-scram", user)]

    def _login(self) -> str:
        options = ""
        if self.mechanism == "PLAIN":
            options = "".join(f" user_{user}={_quoted(word)}" for user, word in self.users.items())
        return f"{LOGIN_MODULES[self.mechanism]} required{options};"


def _salted(mechanism: str, password: str) -> str:
    """Return the RFC 5802 credential of a password, so that the password itself is on no command line."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(
        mechanism.removeprefix("SCRAM-").lower().replace("-", ""), password.encode(), salt, SCRAM_ITERATIONS
    )
    fields = {"salt": base64.b64encode(salt).decode(), "saltedpassword": base64.b64encode(salted).decode()}
    return ",".join([f"iterations={SCRAM_ITERATIONS}", *(f'{name}="{value}"' for name, value in fields.items())])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

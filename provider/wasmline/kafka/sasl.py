"""Authenticates a connection with PLAIN (RFC 4616) or SCRAM (RFC 5802), by librdkafka's settings."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping

from wasmline.errors import InvalidKafkaConfig, KafkaError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *HASHES)

MAX_ITERATIONS = 1_000_000
"""Maximum PBKDF2 iterations that a server may request: some seconds of CPU time."""

Exchange = Callable[[bytes], bytes]
"""Sends a message to the server and returns the server's answer."""


def mechanism_of(properties: Mapping[str, str]) -> str:
    """Return the SASL mechanism of these settings. Raises InvalidKafkaConfig for one that is not supported here."""
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in MECHANISMS:
        text = f"sasl.mechanism {mechanism} is not supported by Wasmline's own requests: use {', '.join(MECHANISMS)}"
        raise InvalidKafkaConfig(text, key="sasl.mechanism")
    return mechanism


def authenticate(mechanism: str, properties: Mapping[str, str], exchange: Exchange) -> None:
    """Prove the user's password; with SCRAM, have the server prove that it knows it, too. Raises KafkaError."""
    user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    if mechanism == "PLAIN":
        exchange(f"\0{user}\0{password}".encode())
    else:
        _scram(HASHES[mechanism], user, password, exchange)


def _scram(algorithm: str, user: str, password: str, exchange: Exchange) -> None:
    nonce = secrets.token_urlsafe(24)
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = exchange(f"n,,{first}".encode())
    fields = _fields(challenge)
    try:
        both, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise KafkaError("the broker's SCRAM challenge lacks a nonce, a salt or a count") from error
    if not both.startswith(nonce) or not 0 < iterations <= MAX_ITERATIONS:
        raise KafkaError("the broker's SCRAM challenge is not an answer to this client's message")

    def keyed(key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, algorithm)

    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    key = keyed(salted, b"Client Key")
    bare = f"c=biws,r={both}"
    signed = b",".join([first.encode(), challenge, bare.encode()])
    signature = keyed(hashlib.new(algorithm, key).digest(), signed)
    proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
    final = _fields(exchange(f"{bare},p={base64.b64encode(proof).decode()}".encode()))
    expected = base64.b64encode(keyed(keyed(salted, b"Server Key"), signed)).decode()
    if not hmac.compare_digest(final.get("v", ""), expected):
        raise KafkaError("the broker does not know the password: its SCRAM signature is wrong")


def _fields(message: bytes) -> dict[str, str]:
    pairs = (part.partition("=") for part in message.decode(errors="replace").split(","))
    return {name: value for name, _, value in pairs}

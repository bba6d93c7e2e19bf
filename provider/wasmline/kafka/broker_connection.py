"""Sends requests of Kafka's protocol to one broker: those that neither confluent-kafka nor librdkafka can send.

Of librdkafka's connection settings these are supported: ``security.protocol`` (all four), ``ssl.ca.location``,
``ssl.ca.pem``, ``ssl.certificate.*`` and ``ssl.key.*`` in PEM files, ``enable.ssl.certificate.verification``,
``ssl.endpoint.identification.algorithm``, and SASL with PLAIN or SCRAM. A security setting that cannot be honoured
raises InvalidKafkaConfig: a connection is never less safe than it was configured.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from wasmline.errors import BrokerUnavailable, InvalidKafkaConfig, KafkaError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.protocol_types import NO_TAGGED_FIELDS, MalformedMessage, Reader, int16, int32, sized_bytes, string
from wasmline.kafka.sasl import authenticate, mechanism_of

CLIENT_ID = "wasmline"

MAX_RESPONSE_BYTES = 64 << 20
"""Maximum bytes of an answer."""

SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY = 17, 36

NOT_HONOURED = (
    "ssl.keystore.location",
    "ssl.ca.certificate.stores",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.providers",
    "ssl.engine.location",
)
"""TLS settings without a counterpart in Python's ssl module."""


class Api(NamedTuple):
    """A request's key and version. Flexible versions have headers with tagged fields (KIP-482)."""

    key: int
    version: int
    is_flexible: bool = False


SASL_HANDSHAKE = Api(SASL_HANDSHAKE_KEY, 1)
SASL_AUTHENTICATE = Api(SASL_AUTHENTICATE_KEY, 0)


class BrokerConnection:
    """One connection, authenticated. For one thread; close it.

    Methods raise BrokerUnavailable where the broker does not answer by ``deadline`` (of time.monotonic), NotAuthorized,
    and KafkaError for a malformed answer.
    """

    def __init__(self, config: KafkaConfig, host: str, port: int, deadline: float) -> None:
        self._where = f"{host}:{port}"
        self._deadline = deadline
        self._correlation = itertools.count(1)
        properties = config.properties
        protocol = properties.get("security.protocol", "plaintext").upper()
        mechanism = mechanism_of(properties) if protocol.startswith("SASL") else None
        context = tls_context(properties) if protocol.endswith("SSL") else None
        try:
            self._socket = socket.create_connection((host, port), self._left())
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise self._unreachable(error) from error
        if mechanism is not None:
            try:
                self._log_in(mechanism, properties)
            except BaseException:
                self.close()
                raise

    def request(self, api: Api, body: bytes) -> Reader:
        """Return the answer to a request, from the beginning of its body."""
        correlation = next(self._correlation)
        header = int16(api.key) + int16(api.version) + int32(correlation) + string(CLIENT_ID)
        if api.is_flexible:
            header += NO_TAGGED_FIELDS
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(sized_bytes(header + body))
            answer = Reader(self._receive(self._size()))
        except OSError as error:
            raise self._unreachable(error) from error
        if answer.int32() != correlation:
            raise MalformedMessage("the answer to another request")
        if api.is_flexible:
            answer.tagged_fields()
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _log_in(self, mechanism: str, properties: Mapping[str, str]) -> None:
        answer = self.request(SASL_HANDSHAKE, string(mechanism))
        self._check(answer.int16(), f"{self._where} does not offer {mechanism}")

        def exchange(message: bytes) -> bytes:
            answer = self.request(SASL_AUTHENTICATE, sized_bytes(message))
            code, text = answer.int16(), answer.nullable_string()
            self._check(code, f"{self._where} refused the connection: {text}")
            return answer.sized_bytes()

        authenticate(mechanism, properties, exchange)

    def _check(self, code: int, text: str) -> None:
        if code:
            with translate_errors(self._where):
                raise KafkaException(ClientError(code, text))

    def _size(self) -> int:
        size = int.from_bytes(self._receive(4), "big", signed=True)
        if not 0 <= size <= MAX_RESPONSE_BYTES:
            raise KafkaError(f"{self._where} answers with {size} bytes: is it a Kafka listener, and of this protocol?")
        return size

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            self._socket.settimeout(self._left())
            part = self._socket.recv(min(size - len(received), 1 << 20))
            if not part:
                raise ConnectionResetError("the broker has closed the connection")
            received += part
        return bytes(received)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left")
        return left

    def _unreachable(self, error: OSError) -> KafkaError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return KafkaError(f"{self._where} refused the connection: {error.reason} ({error.verify_message})")
        return BrokerUnavailable(f"{self._where} did not answer: {error}", bootstrap_servers=self._where)


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context with librdkafka's TLS settings. Raises InvalidKafkaConfig for a setting it cannot honour."""
    for key in NOT_HONOURED:
        if properties.get(key):
            raise InvalidKafkaConfig(f"{key} is not honoured by Wasmline's own requests: use PEM files", key=key)
    location = properties.get("ssl.ca.location", "")
    authority = None if location in ("", "probe") else location
    try:
        context = ssl.create_default_context(cafile=authority, cadata=properties.get("ssl.ca.pem") or None)
        if certificate := properties.get("ssl.certificate.location"):
            context.load_cert_chain(
                certificate, properties.get("ssl.key.location") or None, properties.get("ssl.key.password") or ""
            )
    except (OSError, ssl.SSLError) as error:
        text = f"the certificates of ssl.ca.location or ssl.certificate.location cannot be used: {error}"
        raise InvalidKafkaConfig(text, key="ssl.ca.location") from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context

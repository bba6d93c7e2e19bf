"""One Kafka configuration for every client: librdkafka's names, translated for Java, shown without its secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wasmline.errors import InvalidKafkaConfig
from wasmline.kafka.java_properties import java_properties
from wasmline.kafka_login import require_login, with_short_names

VARIABLE = "WASMLINE_KAFKA_CONFIG"
FILE_VARIABLE = "WASMLINE_KAFKA_CONFIG_FILE"

BOOTSTRAP = "bootstrap.servers"
SOCKET_TIMEOUT_MS = "10000"
"""Time limit of a request to a broker that is connected and silent, for producers and consumers outside of a group;
librdkafka's own is a minute. A member of a group keeps that: its requests wait behind the one that joins the group."""

RECONNECT_BACKOFF_MAX_MS = 1_000
"""Maximum time between two attempts to connect to a broker that is down, as Java's clients have it. With librdkafka's
own, ten seconds, a client that was idle meanwhile keeps a stream waiting that long for a broker that leads again."""

SECRET_WORDS = ("password", "passphrase", "secret", "key.pem", "jaas", "oauthbearer.config")
MASK = "***"


@dataclass(frozen=True, slots=True, repr=False)
class KafkaConfig:
    """Connection properties of a cluster: librdkafka properties, ``bootstrap.servers`` among them, as text.

    It is sent to other processes, so callbacks, native plug-ins and logins that not all clients have are rejected with
    InvalidKafkaConfig.
    """

    properties: dict[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", dict(self.properties))
        for key, value in self.properties.items():
            if key.endswith("_cb") or key in ("logger", "on_delivery", "on_commit", "plugin.library.paths"):
                raise InvalidKafkaConfig(f"{key} is code, and a configuration is text: remove it", key=key)
            if not isinstance(value, str):
                raise InvalidKafkaConfig(f"{key} must be a string, got {type(value).__name__}", key=key)
        if not self.properties.get(BOOTSTRAP):
            raise InvalidKafkaConfig(f"{BOOTSTRAP} is missing: name the cluster, as in host:9092", key=BOOTSTRAP)
        object.__setattr__(self, "properties", with_short_names(self.properties))
        require_login(self.properties)

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> KafkaConfig:
        """Return a configuration from JSON-able values, such as an Airflow connection's extra: true becomes "true"."""
        return cls({key: _text(key, value) for key, value in properties.items()})

    @classmethod
    def from_json(cls, text: str, source: str = VARIABLE) -> KafkaConfig:
        """Return the configuration that ``to_json`` wrote; ``source`` names the origin of the text in an error."""
        try:
            properties = json.loads(text)
        except ValueError:
            properties = None  # the parser's message could quote a password
        if not isinstance(properties, dict):
            raise InvalidKafkaConfig(f"{source} is not a JSON object of librdkafka properties", key=source)
        return cls.of(properties)

    @classmethod
    def from_environment(cls) -> KafkaConfig:
        """Return the configuration in $WASMLINE_KAFKA_CONFIG, or in the file that $WASMLINE_KAFKA_CONFIG_FILE names."""
        if text := os.environ.get(VARIABLE):
            return cls.from_json(text)
        if name := os.environ.get(FILE_VARIABLE):
            try:
                return cls.from_json(Path(name).read_text(), name)
            except OSError as error:
                raise InvalidKafkaConfig(
                    f"{FILE_VARIABLE} names {name}: {error.strerror}", key=FILE_VARIABLE
                ) from error
        example = f'{VARIABLE}=\'{{"{BOOTSTRAP}": "host:9092"}}\''
        raise InvalidKafkaConfig(f"no Kafka is configured: set {example}, or {FILE_VARIABLE}", key=VARIABLE)

    @classmethod
    def completed(cls, properties: Mapping[str, Any]) -> KafkaConfig:
        """Return a configuration of these; if they do not name the cluster, added to the environment's."""
        if BOOTSTRAP in properties:
            return cls.of(properties)
        return cls.of({**cls.from_environment().properties, **properties})

    @property
    def bootstrap_servers(self) -> str:
        return self.properties[BOOTSTRAP]

    def client(self, **overrides: Any) -> dict[str, Any]:
        """Return the settings of a confluent-kafka client; ``overrides`` win.

        librdkafka's own lines on stderr are off (``log_level`` 0) unless configured: it reports each refused connection
        there, and relevant ones come back as an error.
        """
        settings = {"log_level": "0", **self.properties, **overrides}
        longest = RECONNECT_BACKOFF_MAX_MS
        with suppress(ValueError):  # what is wrong with it, librdkafka says
            longest = max(longest, int(str(settings.get("reconnect.backoff.ms", 0)), 0))  # may not be less than that
        return {"reconnect.backoff.max.ms": str(longest), **settings}

    def java(self) -> dict[str, str]:
        """Return the same connection for a Java client, such as Spark's, of any role.

        Settings of consumers and producers are omitted: the job sets those. Raises InvalidKafkaConfig for a setting
        that Java clients cannot honour.
        """
        return java_properties(self.properties)

    def to_json(self) -> str:
        """Return the configuration as JSON, secrets included: for a child's environment, never for a log."""
        return json.dumps(self.properties, sort_keys=True)

    def __repr__(self) -> str:
        shown = {key: MASK if _is_secret(key) else value for key, value in sorted(self.properties.items())}
        return f"KafkaConfig({shown})"


def _is_secret(key: str) -> bool:
    return any(word in key for word in SECRET_WORDS)


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidKafkaConfig(f"{key} must be one text or number, got {type(value).__name__}", key=key)

"""Airflow's own ``kafka`` connection as the engine's KafkaConfig."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from wasmline.errors import InvalidKafkaConfig
from wasmline.kafka_login import require_login, with_short_names

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

CLUSTER = frozenset(
    {
        "bootstrap.servers",
        "broker.address.family",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.ssl.certificate.verification",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.timeout.ms",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)
"""Settings of the cluster's address and security: the only ones read from a connection."""

CALLBACKS = frozenset({"error_cb", "throttle_cb", "stats_cb", "log_cb", "oauth_cb", "on_commit"})
"""Settings that name code. Airflow's own hook loads some of them from an allow-list; a Spark job could not."""


logger = logging.getLogger(__name__)


@cache
def _warn_of_unread(connection: str, names: tuple[str, ...]) -> None:
    """Log the names of settings that are not passed on, once in a process."""
    logger.warning(
        "connection %s: settings other than those of the cluster's address and security are not used: %s",
        connection,
        ", ".join(map(repr, names)),
    )


class KafkaHook(BaseHook):
    """Returns the cluster settings of a ``kafka`` connection, and nothing else.

    A connection has other editors than a DAG, and is often shared with consumers that have their own settings: settings
    are read by name, and a warning names the others, such as ``group.id``. A callback is rejected, because it would be
    code, and so is a login that not all clients have, such as Kerberos: see ``wasmline.kafka_login``.

    :param kafka_conn_id: the connection, of Airflow's type ``kafka``: its extra holds librdkafka's settings.
    """

    conn_name_attr = "kafka_conn_id"
    default_conn_name = "kafka_default"
    conn_type = "kafka"
    hook_name = "Apache Kafka"

    def __init__(self, kafka_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.kafka_conn_id = kafka_conn_id

    def get_conn(self) -> KafkaConfig:
        """Return the cluster's settings. Raises InvalidKafkaConfig."""
        return self._config(self.get_connection(self.kafka_conn_id).extra_dejson)

    async def aget_conn(self) -> KafkaConfig:
        """Return the cluster's settings, on an event loop."""
        connection = await self.aget_connection(self.kafka_conn_id)
        return self._config(connection.extra_dejson)

    def get_settings(self) -> dict[str, Any]:
        """Return the cluster's settings as the connection has them. Raises InvalidKafkaConfig."""
        return self._settings(self.get_connection(self.kafka_conn_id).extra_dejson)

    async def aget_settings(self) -> dict[str, Any]:
        """Return the cluster's settings as the connection has them, on an event loop: imports nothing of the engine."""
        connection = await self.aget_connection(self.kafka_conn_id)
        return self._settings(connection.extra_dejson)

    def _config(self, extra: dict[str, Any]) -> KafkaConfig:
        from wasmline.kafka import KafkaConfig

        return KafkaConfig.of(self._settings(extra))

    def _settings(self, extra: dict[str, Any]) -> dict[str, Any]:
        for callback in sorted(CALLBACKS & extra.keys()):
            raise InvalidKafkaConfig(
                f"connection {self.kafka_conn_id} names code in {callback}, which a Spark job in Java could not run: "
                "use a mechanism that settings alone describe, such as SASL/SCRAM or mutual TLS",
                key=callback,
            )
        if not extra.get("bootstrap.servers"):
            raise InvalidKafkaConfig(
                f"connection {self.kafka_conn_id} has no bootstrap.servers in its extra", key="bootstrap.servers"
            )
        try:
            extra = with_short_names(extra)
            require_login(extra)
        except InvalidKafkaConfig as error:
            raise InvalidKafkaConfig(f"connection {self.kafka_conn_id}: {error}", key=error.key) from error
        if unread := sorted(extra.keys() - CLUSTER):
            _warn_of_unread(self.kafka_conn_id, tuple(unread))
        return {name: extra[name] for name in sorted(CLUSTER & extra.keys())}

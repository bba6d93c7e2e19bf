"""Checks that a cluster's login is one that librdkafka and Spark's Java client both have.

Sources: librdkafka's CONFIGURATION.md; the wheels of confluent-kafka are built without libsasl2.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from wasmline.errors import InvalidKafkaConfig

logger = logging.getLogger(__name__)

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

REASONS = {
    "GSSAPI": "Kerberos, which the wheels of confluent-kafka do not have",
    "AWS_MSK_IAM": "IAM of Amazon MSK, whose tokens are made by code in each client",
}

INSTEAD = "use SCRAM-SHA-512, OAUTHBEARER with sasl.oauthbearer.method=oidc, or a client certificate"

OAUTH = "sasl.oauthbearer."
OIDC_REQUIRED = ("client.id", "client.secret", "token.endpoint.url")
OIDC = frozenset(OAUTH + name for name in (*OIDC_REQUIRED, "method", "grant.type", "scope", "extensions"))
"""The settings of OAUTHBEARER that librdkafka and Java both have."""

ALIASES = {f"{OAUTH}client.credentials.{name}": OAUTH + name for name in ("client.id", "client.secret")}
"""librdkafka's other names of them."""


def with_short_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return these settings with librdkafka's aliases of OAUTHBEARER's credentials under the names that Java has, too.

    Raises InvalidKafkaConfig for two values of one setting.
    """
    found = {key: value for key, value in properties.items() if key not in ALIASES}
    for alias in sorted(ALIASES.keys() & properties.keys()):
        _require_one(properties, ALIASES[alias], alias)
        found[ALIASES[alias]] = properties[alias]
    return found


def require_login(properties: Mapping[str, Any]) -> None:
    """Raise InvalidKafkaConfig for a login that not all clients have, in one line that names another.

    Settings of a login have no effect without a ``security.protocol`` of SASL: a warning names those.
    """
    if not uses_sasl(properties):
        if unused := [key for key in sorted(properties) if key.startswith("sasl.")]:
            logger.warning("%s: without effect, as security.protocol is not one of SASL", ", ".join(unused))
        return
    _require_one(properties, "sasl.mechanism", "sasl.mechanisms")
    for key in sorted(properties):
        if key.startswith("sasl.kerberos."):
            raise InvalidKafkaConfig(f"{key} is a setting of {REASONS['GSSAPI']}: {INSTEAD}", key=key)
    given = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    mechanism = str(given or "GSSAPI")
    if mechanism == "OAUTHBEARER":
        _require_oidc(properties)
    elif mechanism not in PASSWORD_MECHANISMS:
        reason = REASONS.get(mechanism, "unknown to Kafka's clients")
        which = mechanism if given else f"missing, and the default {mechanism}"
        raise InvalidKafkaConfig(f"sasl.mechanism is {which}: {reason}; {INSTEAD}", key="sasl.mechanism")


def uses_sasl(properties: Mapping[str, Any]) -> bool:
    """Return whether a client with these settings logs in by SASL."""
    return str(properties.get("security.protocol", "")).upper().startswith("SASL_")


def _require_one(properties: Mapping[str, Any], name: str, alias: str) -> None:
    if properties.get(name) and properties.get(alias) and properties[name] != properties[alias]:
        raise InvalidKafkaConfig(f"{name} and {alias} are one setting, and have two values: remove one", key=name)


def _require_oidc(properties: Mapping[str, Any]) -> None:
    """Reject tokens that are made by code, and what only one of the clients has."""
    if str(properties.get(f"{OAUTH}method", "")).lower() != "oidc":
        raise InvalidKafkaConfig(
            f"{OAUTH}method must be oidc: without it tokens are made by code, as those of Amazon MSK's IAM are, "
            "which a Spark job could not run; or use SCRAM-SHA-512 or a client certificate",
            key=f"{OAUTH}method",
        )
    if str(properties.get(f"{OAUTH}grant.type", "client_credentials")) != "client_credentials":
        raise InvalidKafkaConfig(
            f"{OAUTH}grant.type must be client_credentials, the one that Spark's Java client has too",
            key=f"{OAUTH}grant.type",
        )
    for name in OIDC_REQUIRED:
        if not properties.get(OAUTH + name):
            raise InvalidKafkaConfig(f"{OAUTH}{name} is missing, and OAUTHBEARER needs it", key=OAUTH + name)
    for key in sorted(properties):
        if key.startswith("https.ca."):
            raise InvalidKafkaConfig(
                f"{key} has no counterpart in Spark's Java client: remove it, and let the system and Java trust the "
                "authority of the token endpoint",
                key=key,
            )
        if key.startswith(OAUTH) and key not in OIDC:
            raise InvalidKafkaConfig(f"{key} has no counterpart in Spark's Java client: remove it", key=key)

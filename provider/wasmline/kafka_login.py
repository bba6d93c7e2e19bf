"""Checks that a cluster's login is one that librdkafka and Spark's Java client both have.

Sources: librdkafka's CONFIGURATION.md; the wheels of confluent-kafka are built without libsasl2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wasmline.errors import InvalidKafkaConfig

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


def require_login(properties: Mapping[str, Any]) -> None:
    """Raise InvalidKafkaConfig for a login that not all clients have, in one line that names another."""
    for key in sorted(properties):
        if key.startswith("sasl.kerberos."):
            raise InvalidKafkaConfig(f"{key} is a setting of {REASONS['GSSAPI']}: {INSTEAD}", key=key)
    given = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if not given and not str(properties.get("security.protocol", "")).upper().startswith("SASL"):
        return
    mechanism = str(given or "GSSAPI")
    if mechanism == "OAUTHBEARER":
        _require_oidc(properties)
    elif mechanism not in PASSWORD_MECHANISMS:
        reason = REASONS.get(mechanism, "unknown to Kafka's clients")
        which = mechanism if given else f"missing, and the default {mechanism}"
        raise InvalidKafkaConfig(f"sasl.mechanism is {which}: {reason}; {INSTEAD}", key="sasl.mechanism")


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
        if key.startswith(OAUTH) and key not in OIDC:
            raise InvalidKafkaConfig(f"{key} has no counterpart in Spark's Java client: remove it", key=key)

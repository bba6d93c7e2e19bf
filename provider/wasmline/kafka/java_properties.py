"""Translates librdkafka's connection settings to those of the Java client.

Sources: librdkafka's CONFIGURATION.md and Apache Kafka's AdminClientConfig, whose settings every Java client has; PEM
stores are KIP-651.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wasmline.errors import InvalidKafkaConfig
from wasmline.kafka_login import uses_sasl

SAME = frozenset(
    {
        "bootstrap.servers",
        "client.dns.lookup",
        "client.id",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
"""Connection settings with the same name and meaning."""

LOCAL = frozenset(
    {
        # Internals of librdkafka, without effect on a cluster or another client.
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "broker.address.family",
        "broker.address.ttl",
        "broker.version.fallback",
        "builtin.features",
        "debug",
        "enable.metrics.push",
        "enable.random.seed",
        "internal.termination.signal",
        "log.connection.close",
        "log.queue",
        "log.thread.name",
        "log_level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.copy.max.bytes",
        "receive.message.max.bytes",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        "statistics.interval.ms",
        "topic.blacklist",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
        # Settings of consumers and producers, which the Java job sets itself.
        "acks",
        "allow.auto.create.topics",
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "batch.num.messages",
        "batch.size",
        "check.crcs",
        "client.rack",
        "compression.codec",
        "compression.level",
        "compression.type",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "linger.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "partition.assignment.strategy",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "session.timeout.ms",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""Settings that a Java client omits: they change how one client works, not the cluster it reaches or its security."""

MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
"""librdkafka accepts either name of the mechanism."""

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
OAUTH = "sasl.oauthbearer."
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the connection that ``properties`` describe as Java client properties.

    Raises InvalidKafkaConfig for a key that is neither translated nor known to be internal to a client: a connection is
    never made less safe than it was configured. A client certificate is read here and passed inline, because Java
    requires it and its key in one place.
    """
    left = {key: value for key, value in properties.items() if key not in LOCAL}
    java = {key: left.pop(key) for key in SAME & left.keys()}
    java |= _sasl(left, needed=uses_sasl(properties))
    java |= _trust(left)
    java |= _identity(left)
    if left:
        key = min(left)
        raise InvalidKafkaConfig(f"{key} has no counterpart in the Java client that Spark uses: remove it", key=key)
    if "security.protocol" in java:
        java["security.protocol"] = java["security.protocol"].upper()
    return dict(sorted(java.items()))


def _sasl(left: dict[str, str], *, needed: bool) -> dict[str, str]:
    if not needed:
        for key in [key for key in left if key.startswith("sasl.")]:
            del left[key]  # without effect for librdkafka, too
        return {}
    found = [left.pop(key) for key in MECHANISMS if key in left]
    mechanism = found[0] if found else "GSSAPI"
    if mechanism not in LOGIN_MODULES:
        known = ", ".join(LOGIN_MODULES)
        raise InvalidKafkaConfig(
            f"sasl.mechanism {mechanism} is not supported on Spark: use {known}", key="sasl.mechanism"
        )
    java = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return java | _oauth(left)
    options = {option: _required(left, f"sasl.{option}", mechanism) for option in ("username", "password")}
    return java | {"sasl.jaas.config": _login(mechanism, options)}


def _oauth(left: dict[str, str]) -> dict[str, str]:
    """Translate the OpenID Connect client credentials flow; other methods run application code."""
    method = left.pop(f"{OAUTH}method", "default")
    if method.lower() != "oidc":
        raise InvalidKafkaConfig(f"{OAUTH}method {method} has no Java counterpart: use oidc", key=f"{OAUTH}method")
    grant = left.pop(f"{OAUTH}grant.type", "client_credentials")
    if grant != "client_credentials":
        raise InvalidKafkaConfig(f"{OAUTH}grant.type {grant} has no Java counterpart", key=f"{OAUTH}grant.type")
    options = {
        "clientId": _required(left, f"{OAUTH}client.id", "OAUTHBEARER"),
        "clientSecret": _required(left, f"{OAUTH}client.secret", "OAUTHBEARER"),
    }
    if scope := left.pop(f"{OAUTH}scope", ""):
        options["scope"] = scope
    for pair in filter(None, left.pop(f"{OAUTH}extensions", "").split(",")):
        name, _, value = pair.partition("=")
        options[f"extension_{name}"] = value
    return {
        "sasl.login.callback.handler.class": OAUTH_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": _required(left, f"{OAUTH}token.endpoint.url", "OAUTHBEARER"),
        "sasl.jaas.config": _login("OAUTHBEARER", options),
    }


def _trust(left: dict[str, str]) -> dict[str, str]:
    java = {}
    if left.pop("enable.ssl.certificate.verification", "true").lower() != "true":
        key = "enable.ssl.certificate.verification"
        raise InvalidKafkaConfig(
            f"Java clients cannot switch {key} off: name the authority in ssl.ca.location", key=key
        )
    if algorithm := left.pop("ssl.endpoint.identification.algorithm", ""):
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm.lower() == "none" else algorithm.lower()
    location = left.pop("ssl.ca.location", "")
    if location and location != "probe":  # probe: search the system's authorities, which is what Java does
        if not Path(location).is_file():
            raise InvalidKafkaConfig(f"ssl.ca.location {location} is not a PEM file", key="ssl.ca.location")
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
    if "ssl.ca.pem" in left:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": left.pop("ssl.ca.pem")}
        java.pop("ssl.truststore.location", None)
    return java


def _identity(left: dict[str, str]) -> dict[str, str]:
    """Translate a client certificate: PEM in files or inline, or a PKCS #12 store.

    An encrypted PEM key is passed unchanged. Java 17 cannot open one of scheme PBES2, which is what OpenSSL writes; a
    PKCS #12 store has no such gap.
    """
    if "ssl.keystore.location" in left:
        store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": left.pop("ssl.keystore.location")}
        if "ssl.keystore.password" in left:
            store["ssl.keystore.password"] = left.pop("ssl.keystore.password")
        return store
    chain, key = _pem(left, "ssl.certificate"), _pem(left, "ssl.key")
    if not chain and not key:
        return {}
    if not chain or not key:
        missing = "ssl.key.location" if chain else "ssl.certificate.location"
        raise InvalidKafkaConfig(f"{missing} is missing: a client certificate and its key go together", key=missing)
    if "PRIVATE KEY-----" in key and not key.lstrip().startswith(
        ("-----BEGIN PRIVATE", "-----BEGIN ENCRYPTED PRIVATE")
    ):
        raise InvalidKafkaConfig(
            "ssl.key.location holds a key that is not PKCS #8, which Java needs: convert it with openssl pkcs8 -topk8",
            key="ssl.key.location",
        )
    java = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    if "ssl.key.password" in left:
        java["ssl.key.password"] = left.pop("ssl.key.password")
    return java


def _pem(left: dict[str, str], prefix: str) -> str:
    location, text = left.pop(f"{prefix}.location", ""), left.pop(f"{prefix}.pem", "")
    if not location or text:
        return text
    try:
        return Path(location).read_text()
    except OSError as error:
        key = f"{prefix}.location"
        raise InvalidKafkaConfig(f"{key} {location} cannot be read: {error.strerror}", key=key) from error


def _required(left: dict[str, str], key: str, mechanism: str) -> str:
    if key not in left:
        raise InvalidKafkaConfig(f"{key} is missing, and {mechanism} needs it", key=key)
    return left.pop(key)


def _login(mechanism: str, options: Mapping[str, str]) -> str:
    pairs = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{LOGIN_MODULES[mechanism]} required{pairs};"


def _quoted(value: str) -> str:
    r"""Return ``value`` as JAAS reads it back: in double quotes, where \ and " are escaped."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

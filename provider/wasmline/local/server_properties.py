"""Generates a node's server.properties for a small machine."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from wasmline.local.cluster_file import Cluster, Node
from wasmline.local.ports import HOST
from wasmline.local.security import SaslSsl

CLIENT, INTERNAL, CONTROLLER = "CLIENT", "INTERNAL", "CONTROLLER"

# Only the first compiler: a short-lived broker starts in half the time, and is as fast at this size.
JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xss512k",
    "-XX:MaxMetaspaceSize=192m",
    "-XX:ReservedCodeCacheSize=64m",
)

# Imported records with their own timestamps would be removed within minutes.
RETENTION = {"log.retention.hours": "-1"}

SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "auto.create.topics.enable": "false",
}

# With the defaults a lost node stalls its partitions for 13 to 17 seconds, and a killed one that restarts waits 9
# seconds for its old session to end.
QUICK_FAILOVER = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}


def server_properties(cluster: Cluster, node: Node, folder: Path, security: SaslSsl | None) -> str:
    """Return the node's server.properties; ``folder`` is the node's own."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "log.dirs": str(folder / "data"),
        **_listeners(cluster, node, secured=security is not None),
        **_replication(len(cluster.nodes)),
        **RETENTION,
        **SMALL,
        **QUICK_FAILOVER,
    }
    if security is not None:
        settings |= security.settings(CLIENT, folder / "keystore.pem")
    return properties_text(settings)


def properties_text(settings: Mapping[str, str]) -> str:
    """Return ``settings`` in the format of java.util.Properties, for values with any characters."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _listeners(cluster: Cluster, node: Node, *, secured: bool) -> dict[str, str]:
    """Return the listeners. Secured nodes connect to each other on a plain loopback port of their own."""
    ports = {CLIENT: node.port, CONTROLLER: node.controller_port}
    if secured:
        ports[INTERNAL] = node.internal_port
    protocols = {name: "SASL_SSL" if secured and name == CLIENT else "PLAINTEXT" for name in ports}
    return {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(
            f"{name}://{HOST}:{port}" for name, port in ports.items() if name != CONTROLLER
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": INTERNAL if secured else CLIENT,
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(f"{each.id}@{HOST}:{each.controller_port}" for each in cluster.nodes),
    }


def _replication(nodes: int) -> dict[str, str]:
    replicas = str(min(3, nodes))
    in_sync = str(min(2, nodes))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _escaped(value: str) -> str:
    r"""Return ``value`` with all but plain ASCII in escapes: the file is Latin-1, and a \ starts an escape."""
    encoded = value.encode("utf-16-be")
    units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    return "".join(chr(unit) if " " <= chr(unit) <= "~" and chr(unit) != "\\" else f"\\u{unit:04x}" for unit in units)

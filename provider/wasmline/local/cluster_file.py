"""The cluster file in a cluster's folder: identity, nodes, ports and running processes."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wasmline.errors import LocalError, PortInUse
from wasmline.local import service_folder
from wasmline.local.ports import HOST, free_port, is_free

FILE = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker and controller. ``pid`` is None while it does not run."""

    id: int
    port: int
    controller_port: int
    internal_port: int
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The description of a cluster in its folder."""

    id: str
    nodes: tuple[Node, ...]
    protocol: str = "PLAINTEXT"
    detached: bool = False

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def save(self, folder: Path) -> None:
        """Write the description into ``folder``."""
        service_folder.write(folder / FILE, json.dumps(asdict(self), indent=2) + "\n")


def load(folder: Path) -> Cluster | None:
    """Return the cluster described in ``folder``, or None."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        plain = json.loads(path.read_text())
        return Cluster(**{**plain, "nodes": tuple(Node(**node) for node in plain["nodes"])})
    except (ValueError, TypeError, KeyError) as error:
        raise LocalError(f"{path} cannot be read ({error}): remove the folder, or name another one") from error


def new_cluster(nodes: int) -> Cluster:
    """Return a cluster with a fresh identity, whose nodes have no ports yet."""
    empty = tuple(Node(id=index + 1, port=0, controller_port=0, internal_port=0) for index in range(nodes))
    return Cluster(id=_cluster_id(), nodes=empty)


def with_ports(cluster: Cluster, asked: tuple[int, ...]) -> Cluster:
    """Return the cluster with ports that are free now: the requested ones, else its earlier ones, else any.

    Raises PortInUse for a requested port that is in use.
    """
    for port in asked:
        if not is_free(port):
            raise PortInUse(f"port {port} is in use: choose another port, or omit it for a free one", port=port)
    taken = set(asked)

    def settle(port: int) -> int:
        if port and port not in taken and is_free(port):
            taken.add(port)
            return port
        return free_port(taken)

    nodes = [
        replace(
            node,
            port=asked[index] if asked else settle(node.port),
            controller_port=settle(node.controller_port),
            internal_port=settle(node.internal_port),
        )
        for index, node in enumerate(cluster.nodes)
    ]
    return replace(cluster, nodes=tuple(nodes))


def _cluster_id() -> str:
    """Return 128 random bits as Kafka writes them; a leading '-' would read as an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text

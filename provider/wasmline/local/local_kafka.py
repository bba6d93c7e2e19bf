"""A real Apache Kafka on this machine: one node, or a cluster of several, each broker and controller in one (KRaft)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from wasmline.errors import LocalError, ServiceFailed
from wasmline.local import cluster_file, service_folder
from wasmline.local.cluster_file import Cluster
from wasmline.local.jars import kafka_jars
from wasmline.local.jvm import find_java
from wasmline.local.node import KafkaNode, PortTaken
from wasmline.local.security import SaslSsl
from wasmline.local.server_properties import JVM_OPTIONS, server_properties

logger = logging.getLogger(__name__)

START_ATTEMPTS = 5


class LocalKafka:
    """A Kafka with its data in ``folder``: it restarts with its topics and, if they are free, its ports.

    Its nodes end with this process, however it ends, unless they are started detached. The folder's first start fixes
    the number of ``nodes`` (default: one); ``ports`` requests client ports, one per node. Not thread-safe.

        with LocalKafka(Path("build/kafka")) as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int | None = None,
        security: SaslSsl | None = None,
        ports: Sequence[int] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self._security = security
        self._ports = tuple(ports or ())
        self._cluster = cluster_file.load(self.folder) or cluster_file.new_cluster(1 if nodes is None else nodes)
        self._check(nodes)
        self._nodes = {
            node.id: KafkaNode(node.id, self.folder / f"node-{node.id}", pid=node.pid, detached=self._cluster.detached)
            for node in self._cluster.nodes
        }

    @property
    def bootstrap_servers(self) -> str:
        """The client listeners, comma separated; valid once the cluster was started."""
        return self._cluster.bootstrap_servers

    @property
    def cluster(self) -> Cluster:
        """The nodes with their ports and processes, and whether they are detached."""
        return self._cluster

    def running(self) -> tuple[int, ...]:
        """Return the ids of the nodes that run, counted from 1."""
        return tuple(node.id for node in self._nodes.values() if node.running())

    def start(self, *, detached: bool = False) -> None:
        """Start every node and return when all are ready. ``detached`` nodes stay when this process ends.

        Raises PortInUse for a requested port, ServiceFailed with the end of a node's log, PrerequisiteMissing,
        ArtifactUnavailable, and LocalError if a Kafka already runs in the folder.
        """
        if running := self.running():
            raise LocalError(f"a Kafka runs in {self.folder} ({len(running)} nodes): stop it, or name another folder")
        java = _java()
        service_folder.own_folder(self.folder)
        for _ in range(START_ATTEMPTS):
            protocol = "SASL_SSL" if self._security else "PLAINTEXT"
            self._cluster = replace(self._cluster, protocol=protocol, detached=detached)
            self._cluster = cluster_file.with_ports(self._cluster, self._ports)
            try:
                return self._start_all(java)
            except PortTaken:
                logger.info("a port of the Kafka in %s was taken meanwhile; choosing others", self.folder)
                self.stop()
            except BaseException:
                self.stop()
                raise
        raise ServiceFailed(
            f"the ports of the Kafka in {self.folder} were taken {START_ATTEMPTS} times in a row", log=""
        )

    def stop(self) -> None:
        """Stop every node; the data stays. Does nothing if none runs."""
        for node in self._nodes.values():
            if len(self._nodes) == 1:
                node.stop()
            else:
                # An orderly stop takes up to 16 seconds, because the last nodes wait for a majority that has ended.
                # Acknowledged records are in the operating system's cache, so a killed process loses none.
                node.kill()
        self._remember()

    def start_node(self, node: int) -> None:
        """Start one node again, on its old ports, and return when it is ready."""
        self._nodes[node].start(_java(), detached=self._cluster.detached)
        self._remember()
        self._nodes[node].await_ready()

    def stop_node(self, node: int) -> None:
        """Stop one node in order."""
        self._nodes[node].stop()
        self._remember()

    def kill_node(self, node: int) -> None:
        """End one node at once, as ``kill -9`` does."""
        self._nodes[node].kill()
        self._remember()

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _check(self, nodes: int | None) -> None:
        count = len(self._cluster.nodes)
        if count < 1:
            raise LocalError(f"nodes must be at least 1, got {nodes}")
        if nodes is not None and nodes != count:
            raise LocalError(f"{self.folder} has a cluster of {count} nodes, not of {nodes}: choose another folder")
        if self._ports and len(set(self._ports)) != count:
            raise LocalError(f"{count} nodes need {count} different ports, or none for free ones")

    def _start_all(self, java: Sequence[str]) -> None:
        self._remember()
        users = self._security.scram_users() if self._security else []
        keystore = self._security.keystore() if self._security else None
        for node, settings in zip(self._nodes.values(), self._cluster.nodes, strict=True):
            node.configure(server_properties(self._cluster, settings, node.folder, self._security), keystore)
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(lambda node: node.format(java, self._cluster.id, users), self._nodes.values()))
        for node in self._nodes.values():
            node.start(java, detached=self._cluster.detached)
        self._remember()
        for node in self._nodes.values():
            node.await_ready()

    def _remember(self) -> None:
        nodes = tuple(replace(node, pid=self._nodes[node.id].pid) for node in self._cluster.nodes)
        self._cluster = replace(self._cluster, nodes=nodes)
        if self.folder.exists():
            self._cluster.save(self.folder)


def _java() -> list[str]:
    return [str(find_java().path), *JVM_OPTIONS, "-cp", ":".join(map(str, kafka_jars()))]

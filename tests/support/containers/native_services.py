"""Starts the services of the Compose file on this machine: their commands and environments, at other places."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import psutil  # type: ignore[import-untyped]

from support.containers.compose_file import REPOSITORY, command, read_compose
from support.containers.dockerfile import read_stages
from support.supervision.processes import descendants, is_alive, kill
from wasmline.disk_cache import cache_root
from wasmline.kafka import KafkaConfig
from wasmline.local import cluster_file
from wasmline.local.installed_spark import packaged_spark
from wasmline.local.jars import kafka_jars
from wasmline.local.jvm import find_java
from wasmline.local.node import KafkaNode
from wasmline.local.ports import HOST, free_port, is_free
from wasmline.local.process import Service
from wasmline.local.server_properties import JVM_OPTIONS, properties_text

STAGES = {"wasmline/engine": "engine", "wasmline/airflow": "airflow"}

STOP_TIMEOUT_S = 60.0

INHERITED = ("HOME", "LANG", "JAVA_HOME", "JDK_JAVA_OPTIONS", "TMPDIR")
"""Variables of this process that a service gets, too; all others are those of its image and its own."""


class NativeServices:
    """The services, with their state in ``folder`` and on free ports of the loopback address. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._taken: set[int] = set()
        self.ports = {
            name: free_port(self._taken)
            for name in (
                *("kafka", "controller", "host", "spark", "spark_page", "customers", "airflow", "worker"),
                *("logs", "triggers"),
            )
        }
        self.ports["metrics"] = self._two_ports()
        self.kafka = KafkaConfig({"bootstrap.servers": f"{HOST}:{self.ports['kafka']}"})
        self._services = read_compose()["services"]
        self._stages = read_stages()
        self._link_spark(folder / "spark")

    def _link_spark(self, home: Path) -> None:
        """Make a Spark of links to the installed one, where a worker may leave its files."""
        installed = packaged_spark()
        assert installed is not None
        home.mkdir(parents=True)
        for entry in installed.iterdir():
            (home / entry.name).symlink_to(entry)

    def kafka_settings(self) -> dict[str, str]:
        """Return the broker's settings, which the image makes of the variables whose name begins with KAFKA_.

        ``_`` stands for a dot, ``__`` for ``_`` and ``___`` for a hyphen; the heap is not a setting.
        """
        variables = self._services["kafka"]["environment"]
        settings = {
            name.removeprefix("KAFKA_").lower().replace("_", ".").replace("...", "-").replace("..", "_"): value
            for name, value in variables.items()
            if name != "KAFKA_HEAP_OPTS"
        }
        return {name: self._at_other_places(value) for name, value in settings.items()}

    @contextmanager
    def running_kafka(self) -> Iterator[KafkaNode]:
        """Run the broker; its data stays for the next time."""
        folder = self.folder / "kafka"
        folder.mkdir(parents=True, exist_ok=True)
        java = [str(find_java().path), *JVM_OPTIONS, "-cp", ":".join(map(str, kafka_jars()))]
        node = KafkaNode(1, folder)
        node.configure(properties_text(self.kafka_settings()), None)
        node.format(java, cluster_file.new_cluster(1).id, [])
        try:
            node.start(java, detached=False)
            node.await_ready()
            yield node
        finally:
            node.stop()

    def environment(self, name: str) -> dict[str, str]:
        """Return the whole environment of a service: its image's and its own, at this machine's places."""
        service = self._services[name]
        stage = self._stages[STAGES[service["image"].partition(":")[0]]]
        given = {**stage.environment, **service.get("environment", {})}
        inherited = {each: os.environ[each] for each in INHERITED if each in os.environ}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {
            **inherited,
            "PATH": path,
            **{each: self._at_other_places(value) for each, value in given.items()},
            "SPARK_LOCAL_HOSTNAME": HOST,
            "SPARK_LOCAL_IP": HOST,
        }

    def arguments(self, name: str) -> list[str]:
        """Return a service's command, at this machine's places."""
        return [self._at_other_places(each) for each in command(self._services[name])]

    def start(self, name: str, settings: Mapping[str, str] = MappingProxyType({})) -> Service:
        """Start a service, which ends with this process; ``settings`` are variables for this machine alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mark = self.log(name)
        return Service.start(self.arguments(name), str(mark), mark, {**self.environment(name), **settings})

    @contextmanager
    def running(self, name: str, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[Service]:
        """Run a service, and stop it in order."""
        service = self.start(name, settings)
        try:
            yield service
        finally:
            self.stop(name, service)

    def stop(self, name: str, service: Service) -> None:
        """Stop a service by the signal that Compose sends; kill what is left of it, except drivers of jobs."""
        number = signal.Signals[self._services[name].get("stop_signal", "SIGTERM")]
        processes = descendants(service.pid)
        if processes:
            with suppress(psutil.NoSuchProcess):
                processes[0].send_signal(number)
        service.wait(STOP_TIMEOUT_S)
        kill(each for each in processes if is_alive(each))

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def end_of_log(self, name: str) -> str:
        """Return the end of what a service has printed."""
        log = self.log(name)
        return log.read_text(errors="replace")[-4_000:] if log.exists() else ""

    def _two_ports(self) -> int:
        """Return a free port before another free one: the streams' metrics are at consecutive ports."""
        first = free_port(self._taken)
        while first + 1 in self._taken or not is_free(first + 1):
            first = free_port(self._taken)
        self._taken.add(first + 1)
        return first

    def _at_other_places(self, text: str) -> str:
        if text in (values := self._values()):
            return values[text]
        for place, here in self._places().items():
            text = text.replace(place, here)
        return text

    def _values(self) -> dict[str, str]:
        """Return what stands for a whole variable or argument of the containers."""
        numbers = {"8000": "customers", "8080": "airflow", "9400": "worker", "9401": "metrics"}
        return {"0.0.0.0": HOST, **{number: str(self.ports[name]) for number, name in numbers.items()}}

    def _places(self) -> dict[str, str]:
        """Return what stands for an address or a path of the containers, anywhere in a text, longer ones first."""
        ports, cache = self.ports, cache_root()
        return {
            "kafka:9092": f"{HOST}:{ports['kafka']}",
            "kafka:9093": f"{HOST}:{ports['controller']}",
            "localhost:19092": f"{HOST}:{ports['host']}",
            "CLIENT://:9092": f"CLIENT://{HOST}:{ports['kafka']}",
            "CONTROLLER://:9093": f"CONTROLLER://{HOST}:{ports['controller']}",
            "HOST://:19092": f"HOST://{HOST}:{ports['host']}",
            "/var/lib/kafka/data": str(self.folder / "kafka" / "data"),
            "spark-master:7077": f"{HOST}:{ports['spark']}",
            'spark-master", "port": 7077': f'{HOST}", "port": {ports["spark"]}',
            "spark-master": HOST,
            "customers:8000": f"{HOST}:{ports['customers']}",
            'customers", "port": 8000': f'{HOST}", "port": {ports["customers"]}',
            "localhost:8080": f"{HOST}:{ports['airflow']}",
            "/var/lib/wasmline": str(self.folder / "wasmline"),
            "/opt/airflow": str(self.folder / "airflow"),
            "/opt/wasmline/cache": str(cache),
            "/opt/wasmline": str(REPOSITORY),
            "/usr/local/lib/python3.11/site-packages/pyspark": str(self.folder / "spark"),
        }

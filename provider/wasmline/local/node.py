"""One Kafka node in a folder of its own: its storage is formatted once, then it can be started repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wasmline.errors import ServiceFailed
from wasmline.local import service_folder
from wasmline.local.process import Service, wait_until

READY = "Kafka Server started"
PORT_TAKEN = "Address already in use"

START_TIMEOUT_S = 120.0
"""Seconds for a node to format its storage, and again to become ready. Usually it takes one and two."""

LOG_LINES = 30

LOGGING = """\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=Console
appender.console.type=Console
appender.console.name=Console
appender.console.target=SYSTEM_OUT
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1} %m%n
"""


class PortTaken(Exception):
    """A port that was free when it was chosen was in use when the node started."""


class KafkaNode:
    """A node's folder, and the process that runs in it."""

    def __init__(self, node: int, folder: Path, *, pid: int | None = None, detached: bool = False) -> None:
        self.id = node
        self.folder = folder
        self.log = folder / "broker.log"
        self._settings = folder / "server.properties"
        self._logged = 0
        self._service = None if pid is None else Service(pid, str(self._settings), detached=detached)

    @property
    def pid(self) -> int | None:
        """The process that was last started and not stopped, running or not."""
        return self._service.pid if self._service else None

    def running(self) -> bool:
        """Return whether the node's process runs."""
        return self._service is not None and self._service.alive()

    def configure(self, settings: str, keystore: str | None) -> None:
        """Write the node's files; those that may contain passwords and keys are readable only by this user."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(LOGGING)
        service_folder.write(self._settings, settings, private=True)
        if keystore is not None:
            service_folder.write(self.folder / "keystore.pem", keystore, private=True)

    def format(self, java: Sequence[str], cluster: str, users: Sequence[str]) -> None:
        """Format the storage of a new node; an existing one is kept. Raises ServiceFailed."""
        if (self.folder / "data" / "meta.properties").exists():
            return
        log = self.folder / "format.log"
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings), *users]
        service = Service.start([*java, *tool], str(self._settings), log)
        if not service.wait(START_TIMEOUT_S):
            service.kill()
        if service.status() != 0:
            end = _end(log.read_text(errors="replace"))
            raise ServiceFailed(f"the storage of Kafka node {self.id} was not formatted:\n{end}", log=end)

    def start(self, java: Sequence[str], *, detached: bool) -> None:
        """Start the node's process."""
        self._logged = self.log.stat().st_size if self.log.exists() else 0
        launch = Service.detach if detached else Service.start
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        self._service = launch([*java, logging, "kafka.Kafka", self._settings], str(self._settings), self.log)

    def await_ready(self) -> None:
        """Return once the node serves clients. Raises PortTaken, or ServiceFailed with the end of its log."""
        wait_until(lambda: READY in self._since_start() or not self.running(), START_TIMEOUT_S)
        log = self._since_start()
        if READY in log and self.running():
            return
        if PORT_TAKEN in log:
            raise PortTaken
        what = "is not ready yet" if self.running() else "ended"
        raise ServiceFailed(f"Kafka node {self.id} {what}; the end of {self.log}:\n{_end(log)}", log=_end(log))

    def stop(self) -> None:
        """Stop the node in order: it first hands its partitions over, if there is another node."""
        if self._service is not None:
            self._service.stop()
            self._service = None

    def kill(self) -> None:
        """End the node like a crash."""
        if self._service is not None:
            self._service.kill()
            self._service = None

    def _since_start(self) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as stream:
            stream.seek(self._logged)
            return stream.read().decode(errors="replace")


def _end(log: str) -> str:
    """Return the last lines of a log without the frames of Java's stack traces, which hide the reason."""
    return "\n".join([line for line in log.splitlines() if not line.startswith("\tat ")][-LOG_LINES:])

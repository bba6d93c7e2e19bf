"""The records of launchers in the job topic: which ones run, and which drivers they started.

Keys: ``/launcher/n`` holds the LauncherStatus of the launcher named ``n``, ``j/launch`` the last Launch of job ``j``.
The fields: docs/protocols/control_topics.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from wasmline.clock import now_ms
from wasmline.control import control_topics
from wasmline.control.launch_request import require_launcher_name
from wasmline.documents import decode, encode
from wasmline.errors import Conflict, InvalidJob, LauncherUnavailable, UnsupportedSpecVersion
from wasmline.kafka import CompactedTopic, KafkaConfig, TransactionalWriter

LAUNCHER_HEARTBEAT_INTERVAL_S = 5.0
"""Seconds between two heartbeats of a launcher."""

LAUNCHER_TIMEOUT_S = 60.0
"""Seconds without a heartbeat after which no order is given to a launcher."""

LAUNCHER_POLL_INTERVAL_S = 0.5

LAUNCHER_KEY_PREFIX = "/launcher/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherStatus:
    """A heartbeat of a launcher. ``instance`` is unique to its process, ``log_folder`` a folder of its ``host``."""

    launcher: str
    instance: str
    host: str
    process: int
    log_folder: str
    updated_ms: int
    spec_version: Literal[1] = 1


MAX_ATTEMPTS = 2**31
"""More starts than a launcher makes: a greater number is no launcher's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a driver, recorded before it.

    launch: unique to the start; a supervisor whose driver was started again by a later one reports nothing.
    attempt: the starts of the run, this one included, since a driver of it was healthy.
    log: the driver's output, on ``host``.
    """

    run: str
    launch: str
    launcher: str
    host: str
    log: str
    attempt: int
    launched_ms: int
    spec_version: Literal[1] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.attempt < MAX_ATTEMPTS:
            raise InvalidJob(f"the attempt of a launch must be from 0 to {MAX_ATTEMPTS - 1}")


def launcher_status_key(launcher: str) -> bytes:
    """Return the key of a launcher's status. A job's name has no slash, so that no record of a job has this key."""
    return f"{LAUNCHER_KEY_PREFIX}{launcher}".encode()


class LauncherClaim:
    """The right to start drivers under a launcher's name: of many processes, the last one to claim it has it.

    Every record of a launcher is written in a transaction of one transactional id, so that one which was replaced
    cannot record, and so does not make, another start.
    """

    def __init__(
        self, config: KafkaConfig, topic: CompactedTopic, status: LauncherStatus, replaced: bytes | None
    ) -> None:
        """Claim the name. Raises Conflict unless the value of its record still is ``replaced``."""
        self._key = launcher_status_key(status.launcher)
        self._writer = TransactionalWriter(config, control_topics.JOBS, f"wasmline.launcher.{status.launcher}")
        try:
            if topic.read().get(self._key) != replaced:
                raise Conflict(
                    f"another process claimed the launcher {status.launcher}", name=status.launcher, generation=None
                )
            self.write(status)
        except BaseException:
            self._writer.close()
            raise

    def write(self, status: LauncherStatus, records: Mapping[bytes, bytes | None] | None = None) -> None:
        """Write a heartbeat, with other records in its transaction. Raises Conflict if another process has the name."""
        self._writer.write({self._key: encode(status), **(records or {})})

    def release(self) -> None:
        """Delete the status: the next process of this name need not wait for the heartbeats to cease."""
        self._writer.write({self._key: None})

    def close(self) -> None:
        """Close the Kafka client."""
        self._writer.close()


def read_launchers(topic: CompactedTopic) -> list[LauncherStatus]:
    """Return the last status of each launcher that was not ended by a signal; skip those that cannot be read."""
    found = []
    for key, value in sorted(topic.read().items()):
        if key.startswith(LAUNCHER_KEY_PREFIX.encode()):
            with suppress(UnsupportedSpecVersion):  # of another release
                found.append(decode(LauncherStatus, value))
    return found


def require_launcher(config: KafkaConfig, name: str, *, timeout: float = LAUNCHER_TIMEOUT_S) -> LauncherStatus:
    """Return the status of a launcher that sends heartbeats; wait up to ``timeout`` seconds for one.

    A status that is recent by this machine's clock, or that changes, is a heartbeat. Raises LauncherUnavailable.
    """
    require_launcher_name(name)
    control_topics.ensure(config)
    topic = CompactedTopic(config, control_topics.JOBS, keep=lambda key: key.startswith(LAUNCHER_KEY_PREFIX.encode()))
    deadline = time.monotonic() + timeout
    try:
        first = {status.launcher: status for status in read_launchers(topic)}
        while True:
            known = {status.launcher: status for status in read_launchers(topic)}
            alive = {
                each: status
                for each, status in known.items()
                if 0 <= now_ms() - status.updated_ms < LAUNCHER_TIMEOUT_S * 1000 or first.get(each) != status
            }
            if name in alive:
                return alive[name]
            if time.monotonic() > deadline:
                raise _unavailable(name, known.get(name), tuple(sorted(alive)))
            time.sleep(LAUNCHER_POLL_INTERVAL_S)
    finally:
        topic.close()


def _unavailable(name: str, last: LauncherStatus | None, alive: tuple[str, ...]) -> LauncherUnavailable:
    seen = f"; its last heartbeat came from process {last.process} on {last.host}" if last else ""
    others = f"launchers that do: {', '.join(alive)}" if alive else "no other launcher does"
    return LauncherUnavailable(
        f"no launcher {name} sends heartbeats on this cluster{seen} ({others}). Nothing was ordered: start "
        f"`wasmline launcher --name {name}`",
        launcher=name,
        alive=alive,
    )

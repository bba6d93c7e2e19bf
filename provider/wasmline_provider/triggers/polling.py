"""The base of event triggers that poll a cluster for as long as a DAG listens."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from wasmline.errors import InvalidJob
from wasmline.repeated_errors import RepeatedErrors
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import Locations
from wasmline_provider.triggers.daemon_thread import call_in_thread

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

T = TypeVar("T")

CONNECTION_CHECK_INTERVAL_S = 60.0
"""Seconds between two readings of the connections, while polls succeed."""


@dataclass(frozen=True, slots=True)
class Poller:
    """``poll`` returns the payload of an event, or None; ``close`` closes the Kafka clients. Both may block."""

    poll: Callable[[], dict[str, Any] | None]
    close: Callable[[], object] = lambda: None


class PollingEventTrigger(BaseEventTrigger):
    """Polls in a thread of its own, and fires whenever a poll gives a payload. No failure ends it, not even the first.

    A watcher has no task that could fail or be tried again: a failure is logged, and the poll repeated. Once a
    connection has changed, other clients poll: it is read again after a poll that failed, else every
    CONNECTION_CHECK_INTERVAL_S. The trigger holds no secret: the connections are read in the triggerer.

    :param kafka_conn_id: the connection of the cluster.
    :param poll_seconds: the time between two polls.
    """

    def __init__(self, *, kafka_conn_id: str, poll_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if not poll_seconds > 0:  # nor is NaN
            raise InvalidJob(f"poll_seconds must be above 0, got {poll_seconds}")
        self.kafka_conn_id = kafka_conn_id
        self.poll_seconds = poll_seconds
        self._errors = RepeatedErrors()
        self._connections: tuple[KafkaConfig, Locations] | None = None
        self._read_at_s = 0.0
        self._poller: Poller | None = None
        self._is_cleaned_up = False
        self._busy = threading.Lock()
        """Held by the thread that uses the poller: its clients are for one thread."""

    @abstractmethod
    def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
        """Return what polls the cluster; called in a thread, logged in to the object store, and may block."""

    async def locations(self) -> Locations:
        """Return the locations that the poller needs: by default none."""
        return Locations()

    async def restore(self) -> None:
        """Read what an earlier triggerer stored; before the first poll."""

    async def store(self) -> None:
        """Store what the next triggerer needs, if it has changed; after each poll and its event."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        is_restored = False
        while True:
            if self._poller is None:
                await self._attempt("connect", self._connect())
            if self._poller is not None:
                if not is_restored:
                    await self._attempt("read its state", self.restore())
                    is_restored = True
                payload = await self._attempt("poll", call_in_thread(self._poll))
                if payload is not None:
                    yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                await self._attempt("store its state", self.store())
                if self._errors.is_failing("poll") or monotonic() - self._read_at_s >= CONNECTION_CHECK_INTERVAL_S:
                    await self._attempt("read its connection", self._disconnect_if_changed())
            await asyncio.sleep(self.poll_seconds)

    async def cleanup(self) -> None:
        """Let the Kafka clients be closed, once the poll that is under way has ended; does not wait for it."""
        self._is_cleaned_up = True
        threading.Thread(target=self._close, name="wasmline-trigger", daemon=True).start()

    def _poll(self) -> dict[str, Any] | None:
        with self._busy:
            return self._poller.poll() if self._poller is not None else None

    def _open(self, config: KafkaConfig, locations: Locations) -> None:
        with self._busy, locations.opened():
            poller = self.poller(config, locations)
            if self._is_cleaned_up:
                poller.close()
            else:
                self._poller = poller

    def _close(self) -> None:
        with self._busy:
            poller, self._poller = self._poller, None
            if poller is not None:
                poller.close()

    async def _connect(self) -> None:
        await call_in_thread(_import_engine)  # not on the loop, which is every trigger's
        config, locations = self._connections = await self._read_connections()
        await call_in_thread(lambda: self._open(config, locations))

    async def _read_connections(self) -> tuple[KafkaConfig, Locations]:
        self._read_at_s = monotonic()
        return await KafkaHook(self.kafka_conn_id).aget_conn(), await self.locations()

    async def _disconnect_if_changed(self) -> None:
        if self._poller is not None and await self._read_connections() != self._connections:
            await call_in_thread(self._close)

    async def _attempt(self, what: str, call: Awaitable[T]) -> T | None:
        """Return the result of ``call``, None if it fails; a failure is logged once for as long as it is the same."""
        try:
            result = await call
        except Exception as error:
            if told := self._errors.changed(what, error):
                self.log.warning("cannot %s, and goes on: %s", what, told)
            return None
        self._errors.solved(what)
        return result


def _import_engine() -> None:
    import wasmline.kafka
    import wasmline.training  # noqa: F401

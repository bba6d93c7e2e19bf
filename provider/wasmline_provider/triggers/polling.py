"""The base of event triggers that poll a cluster for as long as a DAG listens."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.triggers.daemon_thread import call_in_thread

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

Poll = Callable[[], dict[str, Any] | None]
"""Returns the payload of an event, or None."""


class PollingEventTrigger(BaseEventTrigger):
    """Polls in a thread of its own, and fires whenever a poll gives a payload. No failure ends it, not even the first.

    A watcher has no task that could fail or be tried again: a failure is logged, and the poll repeated. The trigger
    holds no secret: the connection is read in the triggerer.

    :param kafka_conn_id: the connection of the cluster.
    :param poll_seconds: the time between two polls.
    """

    def __init__(self, *, kafka_conn_id: str, poll_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kafka_conn_id = kafka_conn_id
        self.poll_seconds = poll_seconds

    @abstractmethod
    def poller(self, config: KafkaConfig) -> Poll:
        """Return what polls the cluster; both are called in a thread, and may block."""

    async def restore(self) -> None:
        """Read what an earlier triggerer stored; before the first poll."""

    async def store(self) -> None:
        """Store what the next triggerer needs; after an event."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        poll: Poll | None = None
        told = ""
        while True:
            payload = None
            try:
                if poll is None:
                    await self.restore()
                    poll = await self._connect()
                payload = await call_in_thread(poll)
                told = ""
            except Exception as error:
                if told != (told := f"{type(error).__name__}: {error}"):
                    self.log.warning("cannot poll, and tries again: %s", told)
            if payload is not None:
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                await self._store()
            await asyncio.sleep(self.poll_seconds)

    async def _connect(self) -> Poll:
        await call_in_thread(_import_engine)  # not on the loop, which is every trigger's
        config = await KafkaHook(self.kafka_conn_id).aget_conn()
        return await call_in_thread(lambda: self.poller(config))

    async def _store(self) -> None:
        try:
            await self.store()
        except Exception as error:
            self.log.warning("cannot store its state, and goes on: %s: %s", type(error).__name__, error)


def _import_engine() -> None:
    import wasmline.kafka
    import wasmline.training  # noqa: F401

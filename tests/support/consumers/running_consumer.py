"""A consumer that runs in a thread of its own, and what its handler saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from support.consumers.clusters import Cluster
from wasmline.consumer import ConsumedRecord, ConsumerHealth, ConsumerOptions, ParallelConsumer
from wasmline.consumer.handler_adapters import Handler
from wasmline.consumer.timings import Timings
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits

TIMEOUT_S = 30.0
"""Seconds after which something that has to happen counts as missing."""

PROMPT = Timings(idle_poll_timeout_s=0.02, retry_backoff_s=0.01)
"""Consumers without work hear of a stop at once, and partitions that begin anew do so at once."""


class Ledger:
    """Notes in handlers, and lets tests wait for what was noted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.seen: list[ConsumedRecord] = []
        self.busy: dict[Any, int] = {}
        """By what was named, how many handlers are at it."""
        self.most: dict[Any, int] = {}
        """How many there were at most."""

    def note(self, record: ConsumedRecord) -> None:
        with self._changed:
            self.seen.append(record)
            self._changed.notify_all()

    def enter(self, name: Any) -> None:
        with self._changed:
            self.busy[name] = self.busy.get(name, 0) + 1
            self.most[name] = max(self.most.get(name, 0), self.busy[name])

    def leave(self, name: Any) -> None:
        with self._changed:
            self.busy[name] -= 1

    def until(self, happened: Callable[[list[ConsumedRecord]], object]) -> list[ConsumedRecord]:
        with self._changed:
            assert self._changed.wait_for(lambda: happened(self.seen), TIMEOUT_S), (
                f"not within {TIMEOUT_S} s: {self.seen}"
            )
            return list(self.seen)

    def count(self, records: int) -> list[ConsumedRecord]:
        return self.until(lambda seen: len(seen) >= records)

    def offsets(self, partition: int = 0) -> list[int]:
        return [record.offset for record in self.seen if record.partition == partition]


class Running:
    """Runs a consumer for the time of a block, at whose end it stops without draining."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        handler: Handler,
        *,
        timings: Timings = PROMPT,
        map_limits: OffsetMapLimits = DEFAULT_LIMITS,
    ) -> None:
        backend = cluster.backend(options, timings)
        self.consumer = ParallelConsumer(options, backend, _timings=timings, _map_limits=map_limits)
        self.failure: BaseException | None = None
        self._handler = handler
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(drain=False)

    def stop(self, *, drain: bool) -> None:
        self.consumer.stop(drain=drain)
        self.join()

    def join(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def until(self, happened: Callable[[ConsumerHealth], object]) -> ConsumerHealth:
        deadline = time.monotonic() + TIMEOUT_S
        while not happened(health := self.consumer.health()):
            assert time.monotonic() < deadline, health
            assert self._thread.is_alive(), self.failure
            self._thread.join(0.01)
        return health

    def _run(self) -> None:
        try:
            self.consumer.run(self._handler)
        except BaseException as error:
            self.failure = error


def ended(cluster: Cluster, options: ConsumerOptions, handler: Handler) -> Running:
    """Run a consumer until it ends by itself."""
    running = Running(cluster, options, handler)
    running._thread.start()
    running.join()
    return running


def drained(
    cluster: Cluster,
    options: ConsumerOptions,
    ledger: Ledger,
    handler: Handler,
    records: int,
    *,
    map_limits: OffsetMapLimits = DEFAULT_LIMITS,
) -> Running:
    """Run a consumer until its handler noted so many records, and drain it."""
    with Running(cluster, options, handler, map_limits=map_limits) as running:
        ledger.count(records)
        running.stop(drain=True)
    return running

"""Writes outputs at least once, in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from wasmline.consumer.backends.memory.cluster import MemoryCluster
from wasmline.consumer.records import Output
from wasmline.errors import WasmlineError

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns


class MemorySink:
    """See Sink for the contract. While no broker answers, outputs wait in their order."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._unsent: deque[tuple[Output, Callable[[Exception | None], None]]] = deque()
        self._answers: deque[tuple[Callable[[Exception | None], None], Exception | None]] = deque()

    def write(self, output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        self._unsent.append((output, done))
        self._send()

    def write_columns(self, outputs: OutputColumns, answer: Callable[[int, int, Exception | None], None]) -> None:
        for number, output in enumerate(outputs.outputs()):
            self.write(output, partial(_answer, answer, number))

    @property
    def is_full(self) -> bool:
        return False

    def poll(self) -> None:
        self._send()
        while self._answers:
            done, error = self._answers.popleft()
            done(error)

    def flush(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        self.poll()
        while self._unsent and (left := deadline - time.monotonic()) > 0:
            with self._cluster.changed:
                self._cluster.changed.wait_for(lambda: not self._cluster.is_unavailable, left)
            self.poll()
        return len(self._unsent)

    def close(self) -> None:
        self._unsent.clear()

    def _send(self) -> None:
        with self._cluster.changed:
            while self._unsent and not self._cluster.is_unavailable:
                output, done = self._unsent.popleft()
                try:
                    self._cluster.write(output)
                except WasmlineError as error:
                    self._answers.append((done, error))
                else:
                    self._answers.append((done, None))


def _answer(answer: Callable[[int, int, Exception | None], None], number: int, error: Exception | None) -> None:
    answer(1, number, error)

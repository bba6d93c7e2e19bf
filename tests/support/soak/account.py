"""What was written and what came out of it, in memory that does not grow with the time that this takes."""

from __future__ import annotations

import threading
from collections import defaultdict, deque


class Account:
    """Matches the outputs of each key with its inputs, one for one and in order. Any thread may tell it of either."""

    def __init__(self) -> None:
        self.matched = 0
        self.wrong: dict[bytes, tuple[bytes, bytes]] = {}
        """By key: what was due and what came in its place, the first time: out of order, twice, or after a loss."""
        self._lock = threading.Lock()
        self._inputs: dict[bytes, deque[bytes]] = defaultdict(deque)
        self._outputs: dict[bytes, deque[bytes]] = defaultdict(deque)

    def put_in(self, key: bytes, value: bytes) -> None:
        with self._lock:
            self._inputs[key].append(value)
            self._match(key)

    def take_out(self, key: bytes, value: bytes) -> None:
        with self._lock:
            self._outputs[key].append(value)
            self._match(key)

    @property
    def open(self) -> int:
        """How many records are on one side only."""
        with self._lock:
            return sum(len(each) for side in (self._inputs, self._outputs) for each in side.values())

    def missing(self) -> dict[bytes, bytes]:
        """Return by key the first output that is still to come."""
        with self._lock:
            return {key: waiting[0] for key, waiting in self._inputs.items() if waiting}

    def _match(self, key: bytes) -> None:
        inputs, outputs = self._inputs[key], self._outputs[key]
        while inputs and outputs:
            due, came = inputs.popleft(), outputs.popleft()
            self.matched += 1
            if due != came:
                self.wrong.setdefault(key, (due, came))

"""Follows the cluster of the page in one thread of this process, which begins with the first request."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from wasmline.clock import now_ms
from wasmline.control import ClusterState
from wasmline.printable import bounded_line
from wasmline.repeated_errors import RepeatedErrors
from wasmline.restart_policy import RestartPolicy

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.25

IDLE_TIMEOUT_S = 900.0
"""Seconds without a request after which the thread ends."""

SILENCE_S = 10.0
"""Seconds without a reading after which the cluster is shown as away."""

DELAYS = RestartPolicy(first_delay_s=1.0, max_delay_s=15.0)
"""Delays between two attempts to read a cluster that is away."""


class Follower(Protocol):
    """Keeps a state up to date; as ``wasmline.control.ClusterFollower``."""

    state: ClusterState
    lock: threading.Lock

    @property
    def ends_error(self) -> Exception | None: ...

    def poll(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """How the reading of a cluster stands. ``read_ms``: when it last succeeded, in Unix milliseconds.

    ``error``: why it is away; of a connected one, why the ends of topics are not known.
    """

    state: Literal["starting", "connected", "away"]
    error: str = ""
    read_ms: int | None = None


class ClusterReader:
    """The newest state of a cluster, also while that is away."""

    def __init__(self, open_follower: Callable[[], Follower]) -> None:
        self._open_follower = open_follower
        self._lock = threading.Lock()
        self._runs = False
        self._used_at = 0.0
        self._errors = RepeatedErrors()
        self._known: tuple[str, ClusterState, threading.Lock] = ("", ClusterState(), threading.Lock())
        self._reading = ClusterReading(state="starting")

    @property
    def reading(self) -> ClusterReading:
        """How the reading stands. Does not block; begins to read."""
        self._use()
        reading = self._reading
        silent_s = (now_ms() - (reading.read_ms or 0)) / 1000
        if reading.state == "connected" and silent_s > SILENCE_S:  # a request to it is under way
            return replace(reading, state="away", error=f"the cluster has not answered for {silent_s:.0f} s")
        return reading

    @contextmanager
    def state(self) -> Iterator[tuple[str, ClusterState]]:
        """Lend the state, with an identity that another state does not have, while its thread waits."""
        self._use()
        identity, state, lock = self._known
        with lock:
            yield identity, state

    def _use(self) -> None:
        with self._lock:
            self._used_at = time.monotonic()
            if not self._runs:
                self._reading = replace(self._reading, state="starting")
                threading.Thread(target=self._run, name="wasmline-cluster-reader", daemon=True).start()
                self._runs = True

    def _is_unused(self) -> bool:
        """Return whether nobody has asked for long; the thread then ends."""
        with self._lock:
            self._runs = time.monotonic() - self._used_at < IDLE_TIMEOUT_S
            return not self._runs

    def _run(self) -> None:
        try:
            self._follow()
        except BaseException:
            with self._lock:
                self._runs = False  # the next request begins another thread
            raise

    def _follow(self) -> None:
        follower: Follower | None = None
        failures = 0
        while not self._is_unused():
            try:
                if follower is None:
                    follower = self._open_follower()
                    self._show(follower, only_first=True)
                follower.poll()
            except Exception as error:
                _close(follower)
                follower, failures = None, failures + 1
                if told := self._errors.changed("cluster", error):
                    logger.warning("the cluster cannot be read, and is tried again: %s", told)
                self._reading = ClusterReading(state="away", error=bounded_line(error), read_ms=self._reading.read_ms)
                time.sleep(DELAYS.delay_s(failures))
            else:
                failures = 0
                self._errors.solved("cluster")
                self._show(follower)
                problem = "" if follower.ends_error is None else bounded_line(follower.ends_error)
                self._reading = ClusterReading(state="connected", error=problem, read_ms=now_ms())
                time.sleep(POLL_INTERVAL_S)
        _close(follower)

    def _show(self, follower: Follower, *, only_first: bool = False) -> None:
        """Lend the state of a follower from now on; with ``only_first`` if there is no other, which has been read."""
        identity, known, _ = self._known
        if known is not follower.state and not (only_first and identity):
            self._known = (uuid.uuid4().hex[:8], follower.state, follower.lock)


def _close(follower: Follower | None) -> None:
    if follower is not None:
        with suppress(Exception):  # of a client that has failed already
            follower.close()

"""One reader of runs per cluster and process, in a daemon thread, for any number of followers.

Nothing of the engine is imported before that thread runs: its callers may be on an event loop.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from wasmline.reading_gaps import ReadingGaps
from wasmline.restart_policy import RestartPolicy
from wasmline_provider.stop_writer import RunStopper, StopWriter

if TYPE_CHECKING:
    from wasmline.control import RunReading
    from wasmline.control.run_reader import RunKey

logger = logging.getLogger(__name__)

RECONNECT_DELAYS = RestartPolicy(first_delay_s=1.0, max_delay_s=15.0)
"""Delays between two attempts to read a cluster that is away."""


class RunSource(Protocol):
    """Reads runs; as ``wasmline.control.RunReader``."""

    def read(self, runs: Collection[RunKey]) -> Mapping[RunKey, RunReading]: ...

    def close(self) -> None: ...


class RunFollower(Protocol):
    """Takes what is read of one run, in the reader's thread. Must not block."""

    def on_reading(self, reading: RunReading) -> None:
        """Take a reading; also one that is equal to the last."""

    def on_interruption(self) -> None:
        """Learn, before the next reading, that the cluster could not be read until now."""

    def on_error(self, error: Exception) -> None:
        """Take the error of a reading; it is tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class FollowHandle:
    """A follower and its run. ``stop`` ends it; the reader then calls it at most once more."""

    run: RunKey
    follower: RunFollower
    interval_s: float
    stop_following: Callable[[FollowHandle], None]

    def stop(self) -> None:
        """End the following. Idempotent, and does not block."""
        self.stop_following(self)


class SharedRunReader:
    """Reads the runs of all followers in one thread, which exists while there are any.

    It connects again for ever: followers learn of errors, and none ends it.
    """

    def __init__(
        self,
        open_source: Callable[[], RunSource],
        *,
        delays: RestartPolicy = RECONNECT_DELAYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_source = open_source
        self._delays = delays
        self._clock = clock
        self._lock = threading.RLock()  # a signal's handler may follow a run while its thread holds the lock
        self._wake = threading.Event()
        self._handles: dict[FollowHandle, ReadingGaps] = {}
        """The followers, with the gaps in the readings of each."""
        self._runs = False

    def follow(self, job: str, run: str, follower: RunFollower, *, interval_s: float) -> FollowHandle:
        """Call ``follower`` with readings of a run, at least every ``interval_s`` seconds, until it is stopped."""
        following = FollowHandle((job, run), follower, interval_s, self._stop)
        with self._lock:
            self._handles[following] = ReadingGaps(interval_s)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="wasmline-run-reader", daemon=True).start()
            self._wake.set()
        return following

    def _stop(self, following: FollowHandle) -> None:
        with self._lock:
            self._handles.pop(following, None)
            if not self._handles:
                self._wake.set()

    def _current(self) -> list[FollowHandle]:
        """Return the followings; without any, the thread ends."""
        with self._lock:
            self._wake.clear()
            self._runs = bool(self._handles)
            return list(self._handles)

    def _run(self) -> None:
        source: RunSource | None = None
        failures = 0
        while followings := self._current():
            try:
                if source is None:
                    source = self._open_source()
                readings = source.read({each.run for each in followings})
            except Exception as error:
                _close(source)
                source, failures = None, failures + 1
                for each in followings:
                    _call(each.follower.on_error, error)
                self._wait(self._delays.delay_s(failures), wakes=False)
            else:
                failures = 0
                for each in followings:
                    self._give(each, readings[each.run])
                self._wait(min(each.interval_s for each in followings), wakes=True)
        _close(source)

    def _give(self, following: FollowHandle, reading: RunReading) -> None:
        with self._lock:
            gaps = self._handles.get(following)
        if gaps is None:
            return
        if gaps.is_after_gap(self._clock()):
            _call(following.follower.on_interruption)
        _call(following.follower.on_reading, reading)

    def _wait(self, seconds: float, *, wakes: bool) -> None:
        """Wait; with ``wakes`` a new follower ends the wait, and the last one's end always does."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._wake.wait(left):
            with self._lock:
                self._wake.clear()
                if wakes or not self._handles:
                    return


class ClusterClients:
    """The shared reader and the stop writer of one cluster. ``settings`` are those of its clients."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self.reader = SharedRunReader(self._open_source)
        self.stops = StopWriter(self._open_stopper)

    def _open_source(self) -> RunSource:
        from wasmline.control import RunReader
        from wasmline.kafka import KafkaConfig

        return RunReader(KafkaConfig.of(self._settings))

    def _open_stopper(self) -> RunStopper:
        from wasmline.control import JobTopic
        from wasmline.kafka import KafkaConfig

        return JobTopic(KafkaConfig.of(self._settings))


_clusters: dict[str, ClusterClients] = {}
_lock = threading.RLock()


def cluster_clients(settings: Mapping[str, Any]) -> ClusterClients:
    """Return this process's ClusterClients for ``settings``. Does not connect."""
    key = json.dumps(settings, sort_keys=True, default=str)
    with _lock:
        if key not in _clusters:
            _clusters[key] = ClusterClients(settings)
        return _clusters[key]


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # a fork does not copy the threads, and their locks may be held forever
    _clusters.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _close(source: RunSource | None) -> None:
    if source is not None:
        with suppress(Exception):  # of a client that has failed already
            source.close()


def _call(method: Callable[..., object], *arguments: object) -> None:
    """Call a follower: an error of one leaves the others their readings."""
    try:
        method(*arguments)
    except Exception:
        logger.exception("a follower of a run failed")

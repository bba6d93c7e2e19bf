"""Follows the orders and reports of runs: one reading thread for each cluster of a process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from wasmline.control import control_topics
from wasmline.control.job_topic import JobOrder, JobTopic
from wasmline.documents import decode
from wasmline.errors import JobNotFound, WasmlineError
from wasmline.job_specs import JobReport
from wasmline.kafka import CompactedTopic, KafkaConfig
from wasmline.repeated_errors import RepeatedErrors, error_line

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
"""Seconds between two readings."""

MAX_RETRY_DELAY_S = 10.0
"""Maximum seconds between two attempts while the cluster cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """The order of a job and the report of one of its runs, as read last.

    reads: how often they were read, so far. unreadable: why they cannot be read now; empty if they can.
    """

    order: JobOrder | None = None
    report: JobReport | None = None
    reads: int = 0
    unreadable: str = ""


def read_snapshot(jobs: JobTopic, job: str, run: str) -> RunSnapshot:
    """Read the order and the report of a run once. An error of the cluster is ``unreadable``."""
    try:
        report, order = jobs.report(job, run), None
        with suppress(JobNotFound):
            order = jobs.order(job)
    except WasmlineError as error:
        return RunSnapshot(unreadable=error_line(error))
    return RunSnapshot(order=order, report=report, reads=1)


@dataclass(slots=True)
class Subscription:
    """The newest snapshot of one run, and what is called in the follower's thread when there is another."""

    job: str
    run: str
    notify: Callable[[], object]
    snapshot: RunSnapshot = field(default_factory=RunSnapshot)
    read: tuple[bytes | None, bytes | None] = (None, None)


class RunFollower:
    """Reads the orders and reports of a cluster's jobs in a thread of its own, while anybody follows a run.

    The thread ends with the last subscription. No error of the cluster ends it: it says so in the snapshots, and
    connects again. Thread-safe.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._subscriptions: list[Subscription] = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def following(self, job: str, run: str, notify: Callable[[], object]) -> Iterator[Subscription]:
        """Follow a run. ``notify`` must not block; it is also called where the cluster cannot be read."""
        subscription = Subscription(job=job, run=run, notify=notify)
        with self._lock:
            self._subscriptions.append(subscription)
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="wasmline-run-follower", daemon=True)
                self._thread.start()
            self._wake.notify()
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions.remove(subscription)
                self._wake.notify()

    def _read(self) -> None:
        topic = CompactedTopic(self._config, control_topics.JOBS, keep=_is_followed)
        errors, delay_s = RepeatedErrors(), POLL_INTERVAL_S
        while subscriptions := self._current():
            try:
                view = topic.read()
            except Exception as error:
                topic.close()
                delay_s = min(2 * delay_s, MAX_RETRY_DELAY_S)
                if told := errors.changed("read", error):
                    servers = self._config.bootstrap_servers
                    logger.warning("the runs of %s cannot be read, trying again: %s", servers, told)
                for each in subscriptions:
                    each.snapshot = replace(each.snapshot, unreadable=error_line(error))
                    each.notify()
            else:
                delay_s = POLL_INTERVAL_S
                errors.solved("read")
                for each in subscriptions:
                    _update(each, view)
            with self._lock:
                self._wake.wait(delay_s)
        topic.close()

    def _current(self) -> list[Subscription]:
        """Return the subscriptions. If there are none, the thread is over from this moment on."""
        with self._lock:
            if not self._subscriptions:
                self._thread = None
            return list(self._subscriptions)


def _is_followed(key: bytes) -> bool:
    return b"/" not in key or b"/report/" in key


def _update(subscription: Subscription, view: dict[bytes, bytes]) -> None:
    """Replace the snapshot of a run, and tell of it if anything but the number of readings has changed."""
    job, run = subscription.job, subscription.run
    read = view.get(job.encode()), view.get(f"{job}/report/{run}".encode())
    last, reads = subscription.snapshot, subscription.snapshot.reads + 1
    if read == subscription.read and last.reads and not last.unreadable:
        subscription.snapshot = replace(last, reads=reads)
        return
    try:
        order, report = decode(JobOrder, read[0]) if read[0] else None, decode(JobReport, read[1]) if read[1] else None
    except WasmlineError as error:
        subscription.snapshot = replace(last, unreadable=error_line(error))
    else:
        subscription.snapshot = RunSnapshot(order=order, report=report, reads=reads)
    subscription.read = read
    subscription.notify()


_FOLLOWERS: dict[str, RunFollower] = {}
_FOLLOWERS_LOCK = threading.Lock()


def run_follower(config: KafkaConfig) -> RunFollower:
    """Return the process's follower of a cluster."""
    with _FOLLOWERS_LOCK:
        return _FOLLOWERS.setdefault(config.to_json(), RunFollower(config))

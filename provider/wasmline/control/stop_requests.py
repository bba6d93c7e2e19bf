"""Requests the stops of many runs by one writer for each cluster of a process."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from wasmline.control.job_topic import JobTopic
from wasmline.errors import JobNotFound, KafkaError
from wasmline.kafka import KafkaConfig

RETRY_DELAY_S = 0.5


@dataclass(frozen=True, slots=True)
class _Request:
    job: str
    run: str
    deadline: float
    done: Future[None] = field(default_factory=Future)


class StopRequests:
    """Writes the stops that are requested meanwhile in one transaction, in a thread that ends when there are none.

    Each writer of orders fences the others: a hundred of them, at one moment, would take turns. Thread-safe.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._requests: list[_Request] = []
        self._is_writing = False

    def stop(self, job: str, run: str, timeout_s: float) -> Future[None]:
        """Request a user's stop of a run; the future is done once it is written.

        Its error is JobNotFound, or the last of the cluster, which was tried for ``timeout_s`` seconds.
        """
        request = _Request(job, run, time.monotonic() + timeout_s)
        with self._lock:
            self._requests.append(request)
            if not self._is_writing:
                self._is_writing = True
                threading.Thread(target=self._write, name="wasmline-stop-requests", daemon=True).start()
        return request.done

    def _write(self) -> None:
        jobs: JobTopic | None = None
        try:
            while requests := self._taken():
                try:
                    jobs = jobs or JobTopic(self._config)
                    unknown = jobs.stop_runs({each.job: each.run for each in requests})
                except Exception as error:
                    if jobs is not None:
                        jobs.close()
                        jobs = None
                    self._retry(requests, error)
                    continue
                for each in requests:
                    _settle(each, JobNotFound(f"no job {each.job!r}", job=each.job) if each.job in unknown else None)
        finally:
            if jobs is not None:
                jobs.close()

    def _taken(self) -> list[_Request]:
        """Return what is requested. If that is nothing, the thread is over from this moment on."""
        with self._lock:
            taken, self._requests = self._requests, []
            self._is_writing = bool(taken)
            return taken

    def _retry(self, requests: list[_Request], error: Exception) -> None:
        may_pass = isinstance(error, KafkaError) and error.retryable
        again = [each for each in requests if may_pass and time.monotonic() < each.deadline]
        for each in requests:
            if each not in again:
                _settle(each, error)
        if again:
            time.sleep(RETRY_DELAY_S)
            with self._lock:
                self._requests = again + self._requests


def _settle(request: _Request, error: Exception | None) -> None:
    with suppress(Exception):  # cancelled by the one who waited
        if error is None:
            request.done.set_result(None)
        else:
            request.done.set_exception(error)


_WRITERS: dict[str, StopRequests] = {}
_WRITERS_LOCK = threading.Lock()


def stop_requests(config: KafkaConfig) -> StopRequests:
    """Return the process's writer of stops for a cluster."""
    with _WRITERS_LOCK:
        return _WRITERS.setdefault(config.to_json(), StopRequests(config))

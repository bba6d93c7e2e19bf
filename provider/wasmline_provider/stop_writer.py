"""Writes requests to stop runs: those that wait at one moment in one transaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from wasmline.restart_policy import RestartPolicy

if TYPE_CHECKING:
    from wasmline.control import StoppedBy

logger = logging.getLogger(__name__)

RETRY_DELAYS = RestartPolicy(first_delay_s=0.5, max_delay_s=4.0)
"""Delays between two attempts to write."""


class RunStopper(Protocol):
    """Requests runs to end; as ``wasmline.control.JobTopic``."""

    def stop_runs(
        self, runs: Mapping[str, str], *, by: StoppedBy, skip_ended: bool, is_requested: Callable[[str], bool]
    ) -> set[str]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class StopRequest:
    """A request to stop a run that waits to be written.

    ``tell`` is called in the writer's thread: with the error of each attempt, and with None once it is written.
    """

    job: str
    run: str
    by: StoppedBy
    tell: Callable[[Exception | None], None]
    cancel_from: Callable[[StopRequest], bool]

    def cancel(self) -> bool:
        """Withdraw the request; return whether it was not written and never will be. Does not block.

        False where it was written, withdrawn before, or where an attempt to write it has begun whose outcome is not
        known.
        """
        return self.cancel_from(self)


class StopWriter:
    """Writes stop requests in one thread, which exists while there are any. Tries each until it is withdrawn.

    A run that has ended by then is left as it is: a stop would keep a supervising DAG from starting the job again.
    """

    def __init__(self, open_stopper: Callable[[], RunStopper], *, delays: RestartPolicy = RETRY_DELAYS) -> None:
        self._open_stopper = open_stopper
        self._delays = delays
        self._lock = threading.RLock()  # a signal's handler may request a stop while its thread holds the lock
        self._wake = threading.Event()
        self._waiting: dict[StopRequest, None] = {}
        self._begun: set[StopRequest] = set()
        """Those of the last attempt to write, whose outcome is not known."""
        self._runs = False

    def request(self, job: str, run: str, tell: Callable[[Exception | None], None], *, by: StoppedBy) -> StopRequest:
        """Request ``run`` to end at its next safe point. Does not block."""
        request = StopRequest(job, run, by, tell, self._cancel)
        with self._lock:
            self._waiting[request] = None
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="wasmline-stop-writer", daemon=True).start()
        return request

    def _cancel(self, request: StopRequest) -> bool:
        with self._lock:
            is_withdrawn = request in self._waiting and request not in self._begun
            self._waiting.pop(request, None)
            if not self._waiting:
                self._wake.set()
            return is_withdrawn

    def _begin(self, stops: Mapping[str, list[StopRequest]], job: str) -> bool:
        """Return whether any of the requests for the stop of a job still waits: it is written now.

        An earlier attempt has been decided by then: its writer is fenced, and the orders were read after that.
        """
        with self._lock:
            self._begun.difference_update(stops[job])
            waiting = [each for each in stops[job] if each in self._waiting]
            self._begun.update(waiting)
            return bool(waiting)

    def _current(self) -> list[StopRequest]:
        """Return what waits; without any, the thread ends."""
        with self._lock:
            self._wake.clear()
            self._runs = bool(self._waiting)
            return list(self._waiting)

    def _run(self) -> None:
        failures = 0
        while waiting := self._current():
            try:
                self._write(waiting)
            except Exception as error:
                failures += 1
                _tell(waiting, error)
                self._wake.wait(self._delays.delay_s(failures))
            else:
                failures = 0
                with self._lock:
                    self._begun.clear()
                    for each in waiting:
                        self._waiting.pop(each, None)
                _tell(waiting, None)

    def _write(self, requests: list[StopRequest]) -> None:
        stopper = self._open_stopper()
        try:
            for by, stops in _batches(requests):
                runs = {job: same[0].run for job, same in stops.items()}
                # A process that was frozen may ask long after the end of a run.
                stopper.stop_runs(runs, by=by, skip_ended=True, is_requested=partial(self._begin, stops))
        finally:
            with suppress(Exception):
                stopper.close()


def stop_failure_message(job: str, run: str, error: str, *, may_be_written: bool = False) -> str:
    """Return the message of a kill that could not reach the cluster, or got no answer to what it wrote."""
    if may_be_written:
        return (
            f"the stop of job {job}, run {run}, got no answer ({error}), and may still be written: wasmline status "
            f"{job} shows it. To stop the run: wasmline stop {job}"
        )
    return (
        f"the stop of job {job}, run {run}, was NOT requested ({error}): it runs on. Once the cluster can be reached, "
        f"stop it with: wasmline stop {job}"
    )


def _batches(requests: list[StopRequest]) -> list[tuple[StoppedBy, dict[str, list[StopRequest]]]]:
    """Return as few batches as have one run of each job, with its requests, those of the system first: of both for a
    run the user's is last."""
    batches: list[tuple[StoppedBy, dict[str, list[StopRequest]]]] = []
    for each in sorted(requests, key=lambda request: request.by):
        fitting = (stops for by, stops in batches if by == each.by and stops.get(each.job, [each])[0].run == each.run)
        stops = next(fitting, None)
        if stops is None:
            batches.append((each.by, stops := {}))
        stops.setdefault(each.job, []).append(each)
    return batches


def _tell(requests: list[StopRequest], error: Exception | None) -> None:
    for each in requests:
        try:
            each.tell(error)
        except Exception:
            logger.exception("the result of a stop request of job %s could not be told", each.job)

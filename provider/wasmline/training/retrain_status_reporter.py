"""Reports the status of a model's retrain conditions to the cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from wasmline.background_call import BackgroundCall
from wasmline.control.retrain_status import RetrainStatus, RetrainStatusTopic
from wasmline.kafka import KafkaConfig
from wasmline.repeated_errors import RepeatedErrors

log = logging.getLogger(__name__)

MAX_INTERVAL_S = 60.0
"""Seconds after which a status is written although its state is the same, and after which a failed write is retried."""

CLOSE_TIMEOUT_S = 5.0
"""Maximum seconds of waiting for a write at the end; after that it is dropped."""


class RetrainStatusReporter:
    """Writes statuses in a thread of its own: neither an error nor a broker that does not answer delays the monitor.

    A status is written if the champion or a condition's state has changed since the last one, and every
    MAX_INTERVAL_S. What cannot be written is logged once for as long as the problem is the same. For one thread.
    """

    def __init__(self, config: KafkaConfig, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._model = model
        self._clock = clock
        self._topic: RetrainStatusTopic | None = None
        self._writing: BackgroundCall[Exception | None] | None = None
        self._errors = RepeatedErrors()
        self._state: object = None
        self._began_at = 0.0

    def report(self, status: RetrainStatus) -> None:
        """Write the status if it is due, unless a write is still running."""
        if not self._has_settled():
            return
        state, now = _state(status), self._clock()
        has_changed = state != self._state and not self._errors.is_failing("status")
        if has_changed or now - self._began_at >= MAX_INTERVAL_S:
            self._state, self._began_at = state, now
            self._writing = BackgroundCall(partial(self._write, status))

    def close(self) -> None:
        """Wait for a write that is running, at most CLOSE_TIMEOUT_S, and close the Kafka clients."""
        if self._has_settled(CLOSE_TIMEOUT_S) and self._topic is not None:
            self._topic.close()
            self._topic = None

    def _has_settled(self, timeout: float = 0.0) -> bool:
        """Return whether no write is running; log the error of the last one here, in the thread of the monitor."""
        if self._writing is None:
            return True
        if not self._writing.wait(timeout):
            return False
        error, self._writing = self._writing.result(), None
        if error is None:
            self._errors.solved("status")
        elif told := self._errors.changed("status", error):
            log.warning("%s: the status of its retrain conditions cannot be written: %s", self._model, told)
        return True

    def _write(self, status: RetrainStatus) -> Exception | None:
        try:
            self._topic = self._topic or RetrainStatusTopic(self._config, self._model)
            self._topic.write(status)
        except Exception as error:  # of any kind: none of them is a reason to train, or not to
            return error
        return None


def _state(status: RetrainStatus) -> object:
    return status.topic, status.champion, [(each.condition, each.is_met) for each in status.checks]

"""Heartbeats of a job during a long operation, and the stop request that may arrive meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from wasmline.control import JobTopic
from wasmline.errors import KafkaError
from wasmline.job_specs import HEARTBEAT_INTERVAL_S, JobReport, JobSpec, JobState
from wasmline.kafka import KafkaConfig

log = logging.getLogger(__name__)


class Heartbeat:
    """While open, reports the run as running every few seconds, and calls ``on_stop`` once a stop is requested."""

    def __init__(self, config: KafkaConfig, spec: JobSpec, *, on_stop: Callable[[], None], spark_ui: str = "") -> None:
        self._config = config
        self._spec = spec
        self._on_stop = on_stop
        self._spark_ui = spark_ui
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="wasmline-heartbeat", daemon=True)
        self.is_stop_requested = False

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def _beat(self) -> None:
        jobs = JobTopic(self._config)
        try:
            while True:
                try:
                    self._report(jobs)
                except KafkaError as error:
                    log.warning("a heartbeat could not be written: %s", error)
                if self._closed.wait(HEARTBEAT_INTERVAL_S):
                    return
        finally:
            jobs.close()

    def _report(self, jobs: JobTopic) -> None:
        running = JobReport.now(self._spec.job, self._spec.run, JobState.RUNNING)
        jobs.write_report(replace(running, spark_ui=self._spark_ui))
        order = jobs.order(self._spec.job)
        if not self.is_stop_requested and (order.wanted == "stopped" or order.spec.run != self._spec.run):
            self.is_stop_requested = True
            self._on_stop()

"""Prometheus metrics of a driver's job: its partition statuses, read from Kafka at each scrape.

Nothing is read between scrapes. Needs the extra ``metrics``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import get_args, get_type_hints

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wasmline.consumer.prometheus import serve_collector
from wasmline.control import StatusTopic
from wasmline.errors import PortInUse
from wasmline.kafka import KafkaConfig
from wasmline.partition_status import PartitionStatus

log = logging.getLogger(__name__)

LABELS = ("job", "transform", "topic", "partition")

GAUGES: dict[str, tuple[str, Callable[[PartitionStatus], float]]] = {
    "wasmline_partition_generation": ("The generation that runs.", lambda it: it.generation),
    "wasmline_partition_offset": ("The next offset to read.", lambda it: it.offset),
    "wasmline_partition_since_offset": ("The offset where the generation began.", lambda it: it.since_offset),
    "wasmline_partition_lag_records": ("Records behind the end of the topic.", lambda it: it.lag),
    "wasmline_partition_rate": ("Records per second of late.", lambda it: it.rate),
    "wasmline_partition_in_flight_records": ("Records that a handler has.", lambda it: it.in_flight),
    "wasmline_partition_stuck_keys": ("Keys whose first record is not finished for a while.", lambda it: it.stuck_keys),
    "wasmline_partition_updated_timestamp_seconds": ("When the driver said so.", lambda it: it.updated_ms / 1_000),
}

COUNTERS: dict[str, tuple[str, Callable[[PartitionStatus], int]]] = {
    "wasmline_partition_records_in": ("Records that were read in this run.", lambda it: it.records_in),
    "wasmline_partition_records_out": ("Records that were written in this run.", lambda it: it.records_out),
    "wasmline_partition_lost_offsets": ("Offsets that the log had no longer, in this run.", lambda it: it.lost_offsets),
    "wasmline_partition_retries": ("Retries in this run.", lambda it: it.retries),
    "wasmline_partition_hangs": ("Delays by lost transaction markers.", lambda it: it.hangs),
}

STATES = get_args(get_type_hints(PartitionStatus)["state"])


class StatusCollector(Collector):
    """Reads one job's partition statuses at every scrape. Must be closed."""

    def __init__(self, config: KafkaConfig, job: str) -> None:
        self._config = config
        self._job = job
        self._log: StatusTopic | None = None
        self._one = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        statuses = self._read()
        for name, (text, value) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            for each in statuses:
                gauge.add_metric(_labels(each), value(each))
            yield gauge
        state = GaugeMetricFamily(
            "wasmline_partition_state", "1 for the state that it is in.", labels=(*LABELS, "state")
        )
        for each in statuses:
            for name in STATES:
                state.add_metric((*_labels(each), name), name == each.state)
        yield state
        for name, (text, count) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=LABELS)
            for each in statuses:
                counter.add_metric(_labels(each), count(each))
            yield counter
        dead_letters = CounterMetricFamily(
            "wasmline_partition_dead_letters", "Dead letters of this run, by reason.", labels=(*LABELS, "reason")
        )
        for each in statuses:
            for reason, number in each.dead_letters.items():
                dead_letters.add_metric((*_labels(each), reason), number)
        yield dead_letters

    def describe(self) -> list[Metric]:
        """Return no metrics, so that registration does not read Kafka."""
        return []

    def close(self) -> None:
        """Close the connection."""
        with self._one:
            if self._log is not None:
                self._log.close()

    def _read(self) -> list[PartitionStatus]:
        with self._one:
            self._log = self._log or StatusTopic(self._config)
            try:
                return self._log.of(self._job)
            finally:
                self._log.close_reader()


@contextmanager
def serving(config: KafkaConfig, job: str, port: int) -> Iterator[int | None]:
    """Serve a job's metrics at ``port`` (0: a free port), and yield the port.

    Metrics are optional: if the port is in use, the error is logged and None is yielded.
    """
    collector = StatusCollector(config, job)
    with ExitStack() as stack:
        stack.callback(collector.close)
        taken = None
        try:
            taken = stack.enter_context(serve_collector(collector, port))
            log.info("the metrics of job %s are at port %d, /metrics", job, taken)
        except PortInUse as error:
            log.error("job %s runs without metrics: %s", job, error)
        yield taken


def _labels(status: PartitionStatus) -> tuple[str, ...]:
    return status.job, status.transform, status.topic, str(status.partition)

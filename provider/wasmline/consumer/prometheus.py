"""A consumer's health as metrics for Prometheus, under the names of the Java library where it has them.

Each scrape queries the consumer, so partitions that are no longer assigned disappear. Needs the extra ``metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from wasmline.consumer.health import ConsumerHealth, Counters, PartitionHealth, State
from wasmline.errors import PortInUse
from wasmline.renames import renamed

COUNTERS: dict[str, tuple[str, Callable[[Counters], int]]] = {
    "pc_processed_records": ("Records that a handler finished.", lambda it: it.records),
    "pc_failed_records": ("Attempts that failed.", lambda it: it.failures),
    "pc_given_up_records": ("Records that were dead-lettered.", lambda it: it.given_up),
    "pc_unreadable_maps": ("Committed offset maps that could not be read.", lambda it: it.unreadable_maps),
    "pc_failed_commits": (
        "Commits of a partition that failed or were not answered in time.",
        lambda it: it.failed_commits,
    ),
}

PARTITION: dict[str, tuple[str, Callable[[PartitionHealth], float | None]]] = {
    "pc_partition_incomplete_offsets": ("Records that were read and are not done.", lambda it: it.incompletes),
    "pc_partition_inflight_records": ("Records in flight.", lambda it: it.in_flight),
    "pc_partition_waiting_records": ("Records that wait for a handler.", lambda it: it.queued),
    "pc_partition_buffered_bytes": ("Bytes of the records in memory.", lambda it: it.buffered_bytes),
    "pc_partition_lag": ("The end offset less the offset to commit.", lambda it: it.lag),
    "pc_partition_oldest_record_timestamp_seconds": (
        "The timestamp of the first record in memory.",
        lambda it: it.oldest and it.oldest[1] / 1_000,
    ),
    "pc_partition_next_commit_offset": ("The offset to commit: all below it are done.", lambda it: it.next_commit),
    "pc_partition_lost_offsets": ("Offsets that the log no longer had.", lambda it: it.counts.lost_offsets),
    "pc_partition_paused": ("1 while its part of the buffers is full.", lambda it: int(it.paused)),
    "pc_partition_aborts": ("Transactions in a row that were aborted and are retried.", lambda it: it.counts.aborts),
    "pc_partition_hangs": ("Delays by lost transaction markers.", lambda it: it.counts.hangs),
    "pc_partition_stalled_seconds": (
        "Seconds since one of its records was last done, while its part of the buffers is full.",
        lambda it: it.stalled_seconds,
    ),
    "pc_partition_last_commit_timestamp_seconds": (
        "Time of its last successful commit, in Unix seconds.",
        lambda it: it.counts.committed_at,
    ),
    "pc_partition_blocked": ("1 while its offset map is nearly too large.", lambda it: int(it.blocked)),
}


class HealthSource(Protocol):
    """The source of the metrics: a ParallelConsumer."""

    def health(self) -> ConsumerHealth:
        """Describe the consumer now."""


class ConsumerCollector(Collector):
    """Reads one consumer at every scrape. Register it with a CollectorRegistry of your own."""

    def __init__(self, consumer: HealthSource, labels: Mapping[str, str] | None = None) -> None:
        """``labels`` are added to all samples: they distinguish several consumers of a registry."""
        self._consumer = consumer
        self._labels = dict(labels or {})

    def collect(self) -> Iterator[Metric]:
        """Query the consumer, and yield its metrics."""
        for metric in self._metrics():
            metric.samples = [each._replace(labels={**self._labels, **each.labels}) for each in metric.samples]
            yield metric

    def _metrics(self) -> Iterator[Metric]:
        health = self._consumer.health()
        status = GaugeMetricFamily("pc_status", "1 for the current state of the consumer.", labels=["state"])
        for state in State:
            status.add_metric([state], state is health.state)
        yield status
        for name, (text, value) in COUNTERS.items():
            yield CounterMetricFamily(name, text, value=value(health.counters))
        yield SummaryMetricFamily(
            "pc_user_function_processing_time_seconds",
            "Calls of the handler, and the time within it.",
            count_value=health.counters.batches,
            sum_value=health.counters.handler_seconds,
        )
        if health.connected_brokers is not None:
            text = "Brokers that the client is connected to; 0: none answers."
            yield GaugeMetricFamily("pc_connected_brokers", text, value=health.connected_brokers)
        yield from _of_partitions(health)
        failing = sum(each.failing_keys for each in health.partitions)
        stuck = sum(each.stuck_keys for each in health.partitions)
        oldest = max((each.oldest_in_flight for each in health.partitions), default=0.0)
        yield GaugeMetricFamily("pc_held_up_keys", "Keys that failed and wait for a retry.", value=failing)
        yield GaugeMetricFamily("pc_stuck_keys", "Keys that failed, or are in a handler for 10 s.", value=stuck)
        timed_out = sum(each.timed_out_calls for each in health.partitions)
        yield GaugeMetricFamily("pc_oldest_inflight_seconds", "The longest time in a handler.", value=oldest)
        yield GaugeMetricFamily("pc_timed_out_calls", "Calls that have exceeded handler_timeout_ms.", value=timed_out)

    def describe(self) -> list[Metric]:
        """Return no metrics, so that registering does not query the consumer."""
        return []


def serve(consumer: HealthSource, port: int) -> AbstractContextManager[int]:
    """Serve one consumer's metrics over HTTP at ``port``, or at a free port for 0; yield the port. Raises PortInUse."""
    return serve_collector(ConsumerCollector(consumer), port)


@contextmanager
def serve_collector(collector: Collector, port: int) -> Iterator[int]:
    """Serve the metrics that a collector returns at each scrape, as ``serve`` does."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, thread = start_http_server(port, registry=registry)
    except OSError as error:
        raise PortInUse(f"metrics cannot be served at port {port}: {error.strerror}", port=port) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _of_partitions(health: ConsumerHealth) -> Iterator[Metric]:
    yield GaugeMetricFamily("pc_partitions_number", "Partitions that are assigned.", value=len(health.partitions))
    sums: dict[str, tuple[str, Callable[[PartitionHealth], int]]] = {
        "pc_partitions_paused": ("Partitions that are paused.", lambda it: it.paused),
        "pc_inflight_records": ("Records in flight.", lambda it: it.in_flight),
        "pc_waiting_records": ("Records that wait for a handler.", lambda it: it.queued),
    }
    for name, (text, summand) in sums.items():
        yield GaugeMetricFamily(name, text, value=sum(map(summand, health.partitions)))
    for name, (text, value) in PARTITION.items():
        family = GaugeMetricFamily(name, text, labels=["topic", "partition"])
        for each in health.partitions:
            if (known := value(each)) is not None:
                family.add_metric([each.partition.topic, str(each.partition.partition)], known)
        yield family


if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)

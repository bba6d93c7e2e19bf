"""Metrics: what a scrape shows of a consumer's health, and that nothing outlives its partition."""

from dataclasses import replace
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from wasmline.consumer import ConsumedRecord, ConsumerHealth, ConsumerOptions, State
from wasmline.consumer.health import Counters, PartitionHealth, WaitingKey, partition_health
from wasmline.consumer.partition_counters import PartitionCounters
from wasmline.consumer.prometheus import ConsumerCollector, serve
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import PortInUse
from wasmline.topic_partitions import TopicPartition

PARTITION = TopicPartition("orders", 3)
BUSY = PartitionHealth(
    partition=PARTITION, next_commit=100, lag=50, queued=20, in_flight=5, buffered_bytes=4_096, incompletes=30,
    oldest=(100, 1_700_000_000_500), paused=True, blocked=False, failing_keys=100, stuck_keys=110,
    oldest_in_flight=12.0, timed_out_calls=2, stalled_seconds=12.5,
    counts=PartitionCounters(hangs=2, aborts=3, lost_offsets=4, committed_at=1_700_000_100.25),
)  # fmt: skip
NEW = PartitionHealth(
    partition=TopicPartition("orders", 4), next_commit=None, lag=None, queued=0, in_flight=0, buffered_bytes=0,
    incompletes=0, oldest=None, paused=False, blocked=False,
)  # fmt: skip
HEALTH = ConsumerHealth(
    state=State.RUNNING,
    counters=Counters(
        records=1_000, failures=7, given_up=2, batches=40, handler_seconds=12.5, unreadable_maps=1, failed_commits=6
    ),
    partitions=(BUSY, NEW),
    connected_brokers=0,
    waiting=(
        WaitingKey(partition=PARTITION, key=b"k", offset=100, attempt=3, seconds=None, error="ValueError: no"),
        WaitingKey(partition=PARTITION, key=b"l", offset=101, attempt=1, seconds=8.0, error=None),
    ),
)


class Consumer:
    """Something whose health is what the test says."""

    def __init__(self, health: ConsumerHealth) -> None:
        self.now = health

    def health(self) -> ConsumerHealth:
        return self.now


def scraped(port: int) -> dict[tuple[str, str], float]:
    """Return samples by name and by topic and partition, or the state."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = ("topic", "partition", "state")
    return {(each.name, "-".join(filter(None, map(each.labels.get, labels)))): each.value for each in samples}


def test_a_scrape_shows_the_health() -> None:
    with serve(Consumer(HEALTH), 0) as port:
        found = scraped(port)
    assert {key: found[key] for key in found if key[1] == ""} == {
        ("pc_processed_records_total", ""): 1_000,
        ("pc_failed_records_total", ""): 7,
        ("pc_given_up_records_total", ""): 2,
        ("pc_unreadable_maps_total", ""): 1,
        ("pc_failed_commits_total", ""): 6,
        ("pc_connected_brokers", ""): 0,
        ("pc_user_function_processing_time_seconds_count", ""): 40,
        ("pc_user_function_processing_time_seconds_sum", ""): 12.5,
        ("pc_partitions_number", ""): 2,
        ("pc_partitions_paused", ""): 1,
        ("pc_inflight_records", ""): 5,
        ("pc_waiting_records", ""): 20,
        ("pc_held_up_keys", ""): 100,
        ("pc_stuck_keys", ""): 110,
        ("pc_timed_out_calls", ""): 2,
        ("pc_oldest_inflight_seconds", ""): 12.0,
    }
    assert {key: found[key] for key in found if key[1] == "orders-3"} == {
        ("pc_partition_incomplete_offsets", "orders-3"): 30,
        ("pc_partition_inflight_records", "orders-3"): 5,
        ("pc_partition_waiting_records", "orders-3"): 20,
        ("pc_partition_buffered_bytes", "orders-3"): 4_096,
        ("pc_partition_lag", "orders-3"): 50,
        ("pc_partition_oldest_record_timestamp_seconds", "orders-3"): 1_700_000_000.5,
        ("pc_partition_next_commit_offset", "orders-3"): 100,
        ("pc_partition_lost_offsets", "orders-3"): 4,
        ("pc_partition_paused", "orders-3"): 1,
        ("pc_partition_aborts", "orders-3"): 3,
        ("pc_partition_hangs", "orders-3"): 2,
        ("pc_partition_blocked", "orders-3"): 0,
        ("pc_partition_stalled_seconds", "orders-3"): 12.5,
        ("pc_partition_last_commit_timestamp_seconds", "orders-3"): 1_700_000_100.25,
    }


def test_before_the_first_report_of_a_client_no_brokers_are_counted() -> None:
    with serve(Consumer(replace(HEALTH, connected_brokers=None)), 0) as port:
        assert ("pc_connected_brokers", "") not in scraped(port)


def test_one_state_is_the_one_that_it_is_in() -> None:
    with serve(Consumer(HEALTH), 0) as port:
        found = scraped(port)
    assert {name for (metric, name), value in found.items() if metric == "pc_status" and value} == {"running"}
    assert {name for metric, name in found if metric == "pc_status"} == set(State)


def test_what_is_not_known_is_left_out() -> None:
    with serve(Consumer(HEALTH), 0) as port:
        names = {name for name, labels in scraped(port) if labels == "orders-4"}
    assert not names & {
        "pc_partition_lag",
        "pc_partition_next_commit_offset",
        "pc_partition_last_commit_timestamp_seconds",
    }
    assert "pc_partition_incomplete_offsets" in names


def test_a_partition_that_was_revoked_is_gone() -> None:
    """Upstream's #859: its gauges stayed, and grew in number with every rebalance."""
    consumer = Consumer(HEALTH)
    with serve(consumer, 0) as port:
        assert "orders-3" in {labels for _, labels in scraped(port)}
        consumer.now = replace(HEALTH, partitions=(NEW,))
        assert "orders-3" not in {labels for _, labels in scraped(port)}


def test_a_port_that_is_taken_is_named() -> None:
    with serve(Consumer(HEALTH), 0) as port, pytest.raises(PortInUse, match=f"at port {port}"), serve(None, port):  # type: ignore[arg-type]
        pass


def test_registering_asks_the_consumer_nothing() -> None:
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(None))  # type: ignore[arg-type]


def test_however_many_keys_fail_all_are_counted_and_none_hides_what_is_in_flight() -> None:
    work = WorkManager(ConsumerOptions(topics=("orders",), group_id="g"))
    work.assign({PARTITION: None})
    work.add(ConsumedRecord(*PARTITION, number, b"%d" % number, b"") for number in range(101))
    first = work.take(0.0)
    while batch := work.take(1.0):
        work.fail(batch, 1.0, OSError("down"))
    assert first is not None
    first.began = 0.0
    (only,) = work
    health = partition_health(only, None, PartitionCounters(), 12.0)
    assert (health.failing_keys, health.stuck_keys, health.oldest_in_flight) == (100, 101, 12.0)


def test_labels_of_ones_own_tell_the_consumers_of_a_registry_apart() -> None:
    registry = CollectorRegistry()
    for name in ("billing", "shipping"):
        registry.register(ConsumerCollector(Consumer(HEALTH), {"consumer": name}))
    series = [
        (each.name, tuple(sorted(each.labels.items()))) for metric in registry.collect() for each in metric.samples
    ]
    assert len(series) == len(set(series))
    assert {dict(labels)["consumer"] for _, labels in series} == {"billing", "shipping"}
    lag = [labels for name, labels in series if name == "pc_partition_lag"]
    assert lag[0] == (("consumer", "billing"), ("partition", "3"), ("topic", "orders"))

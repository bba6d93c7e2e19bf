"""What Prometheus scrapes of a driver: the statuses that stand in Kafka at that moment."""

import uuid
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from wasmline.control import StatusTopic
from wasmline.kafka import KafkaConfig
from wasmline.partition_status import PartitionStatus
from wasmline.spark.prometheus import serving
from wasmline.testing.kafka import RunningKafka


def partition(job: str, number: int, offset: int) -> PartitionStatus:
    return PartitionStatus(
        job=job, transform="t", topic="orders", partition=number, digest="d", generation=3, state="running",
        offset=offset, lag=7, rate=12.5, since_offset=2, updated_ms=1_700_000_000_500, records_in=offset,
        records_out=2 * offset, dead_letters={"late": 3, "no amount": 1}, in_flight=4, retries=6, stuck_keys=1, hangs=2,
        lost_offsets=9,
    )  # fmt: skip


def scraped(port: int | None) -> dict[tuple[str, str, str], float]:
    """Return samples by name, partition, and reason or state."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (each.name, each.labels["partition"], each.labels.get("reason") or each.labels.get("state", "")): each.value
        for family in families
        for each in family.samples
        if each.labels["job"]
    }


def test_each_scrape_shows_what_the_driver_said_last(kafka: RunningKafka) -> None:
    job = f"job-{uuid.uuid4()}"
    log = StatusTopic(kafka.config)
    log.write([partition(job, 0, 10), partition(job, 1, 20), partition(f"{job}-other", 0, 30)])
    with serving(kafka.config, job, 0) as port:
        assert scraped(port) == {
            (f"wasmline_partition_{name}", str(number), which): value
            for number, offset in ((0, 10), (1, 20))
            for name, which, value in (
                ("generation", "", 3),
                ("offset", "", offset),
                ("since_offset", "", 2),
                ("lag_records", "", 7),
                ("rate", "", 12.5),
                ("in_flight_records", "", 4),
                ("stuck_keys", "", 1),
                ("updated_timestamp_seconds", "", 1_700_000_000.5),
                ("state", "running", 1),
                ("state", "paused", 0),
                ("state", "stopped", 0),
                ("state", "failed", 0),
                ("records_in_total", "", offset),
                ("records_out_total", "", 2 * offset),
                ("retries_total", "", 6),
                ("hangs_total", "", 2),
                ("lost_offsets_total", "", 9),
                ("dead_letters_total", "late", 3),
                ("dead_letters_total", "no amount", 1),
            )
        }
        log.write([partition(job, 1, 21)])
        assert scraped(port)["wasmline_partition_offset", "1", ""] == 21
    log.close()


def test_a_port_that_is_taken_costs_the_job_its_metrics_and_nothing_else(
    kafka: RunningKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(kafka.config, "first", 0) as port, serving(kafka.config, "second", port or 0) as none:
        assert none is None
    assert f"job second runs without metrics: metrics cannot be served at port {port}" in caplog.text


def test_nothing_is_read_before_the_first_scrape() -> None:
    with serving(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}), "job", 0) as port:
        assert port

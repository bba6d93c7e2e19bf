"""Services of the Compose file without containers: their commands and environments on a Kafka with its settings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.containers import dashboard, promql
from support.containers.native_services import NativeServices
from wasmline.control import StatusTopic, require_launcher
from wasmline.kafka import KafkaConfig, Topics, produce_all, read_to_end
from wasmline.local.jars import kafka_jars
from wasmline.local.jvm import find_java
from wasmline.local.ports import HOST
from wasmline.local.process import wait_until
from wasmline.partition_status import PartitionStatus
from wasmline.spark.prometheus import serving

pytestmark = pytest.mark.kafka

ORDERS = 200
TIMEOUT_S = 60.0

ADDED = {"group", "instance"}
"""Labels that Prometheus adds: of its configuration, and the address."""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> NativeServices:
    return NativeServices(tmp_path_factory.mktemp("containers"))


@pytest.fixture(scope="module")
def kafka(services: NativeServices) -> Iterator[NativeServices]:
    """Run the broker twice on one folder, as `down` and `up` do with its volume; the second one stays."""
    with services.running_kafka():
        Topics(services.kafka).create("kept", 2)
        produce_all(services.kafka, "kept", [(b"%d" % number, b"value", None, None) for number in range(20)])
    with services.running_kafka():
        yield services


def test_kafka_keeps_its_topics_in_the_folder_of_its_volume(kafka: NativeServices) -> None:
    assert sum(Topics(kafka.kafka).end_offsets("kept").values()) == 20
    settings = kafka.kafka_settings()
    assert (Path(settings["log.dirs"]) / "kept-0").is_dir()
    assert settings["log.dirs"] == str(kafka.folder / "kafka" / "data")


def test_kafka_serves_clients_at_both_listeners(kafka: NativeServices) -> None:
    for listener in ("kafka", "host"):
        config = KafkaConfig({"bootstrap.servers": f"{HOST}:{kafka.ports[listener]}"})
        assert Topics(config).describe("kept").partitions == 2


def test_each_setting_of_the_broker_is_one_that_kafka_knows(kafka: NativeServices) -> None:
    program = [str(find_java().path), "-cp", ":".join(map(str, kafka_jars())), "kafka.server.KafkaConfig"]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r'id="([\w.]+)"', printed))
    assert {"log.dirs", "process.roles"} <= known
    assert set(kafka.kafka_settings()) <= known


@pytest.fixture(scope="module")
def metrics(kafka: NativeServices) -> dict[str, set[str]]:
    """Run the worker with the customers' service until all orders are done; return its metrics with their labels."""
    write = [sys.executable, "-m", "enriching.write_orders", str(ORDERS)]
    subprocess.run(write, env=kafka.environment("airflow"), check=True, capture_output=True)
    with kafka.running("customers"), kafka.running("worker") as worker:
        assert wait_until(lambda: len(enriched(kafka)) == ORDERS, TIMEOUT_S), kafka.end_of_log("worker")
        port = kafka.ports["worker"]
        known = lambda: "pc_connected_brokers" in scraped(port)  # noqa: E731  (after the client's first statistics)
        assert wait_until(known, TIMEOUT_S), scraped(port)
        found = scraped(port)
        kafka.stop("worker", worker)
        assert worker.status() == 0, kafka.end_of_log("worker")
    return found


def enriched(kafka: NativeServices) -> list[dict[str, Any]]:
    return [json.loads(each.value() or b"") for each in read_to_end(kafka.kafka, "orders.enriched")]


def scraped(port: int) -> dict[str, set[str]]:
    """Return the labels of each sample's name."""
    with urlopen(f"http://{HOST}:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def test_the_customers_service_knows_its_customers(kafka: NativeServices) -> None:
    address = f"http://{HOST}:{kafka.ports['customers']}/customers"
    with kafka.running("customers") as customers:
        assert wait_until(lambda: answers(f"{address}/c0"), TIMEOUT_S), kafka.end_of_log("customers")
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(f"{address}/nobody")
        refused.value.close()
        kafka.stop("customers", customers)
        assert customers.status() == 0


def answers(url: str) -> bool:
    try:
        with urlopen(url) as answer:
            return bool(json.load(answer))
    except URLError:
        return False


def test_the_worker_enriches_each_order_once(kafka: NativeServices, metrics: dict[str, set[str]]) -> None:
    orders = enriched(kafka)
    assert sorted(each["order"] for each in orders) == list(range(ORDERS))
    assert all(each["customer"]["id"] for each in orders)
    assert "pc_processed_records_total" in metrics


def test_the_launcher_of_the_streams_sends_heartbeats(kafka: NativeServices) -> None:
    with kafka.running("launcher") as launcher:
        status = require_launcher(kafka.kafka, "streams", timeout=TIMEOUT_S)
        assert status.log_folder == str(kafka.folder / "wasmline" / "drivers")
        kafka.stop("launcher", launcher)
        assert launcher.status() == 0, kafka.end_of_log("launcher")


def test_each_metric_and_label_of_the_dashboard_is_served_by_a_driver_or_a_worker(
    kafka: NativeServices, metrics: dict[str, set[str]]
) -> None:
    status = PartitionStatus(
        job="job", transform="t", topic="orders", partition=0, digest="d", generation=1, state="running", offset=5,
        lag=0, rate=1.0, since_offset=0, updated_ms=1_700_000_000_000, records_in=5, records_out=4,
        dead_letters={"late": 1}, in_flight=0, retries=0, stuck_keys=0, hangs=0, lost_offsets=0,
    )  # fmt: skip
    log = StatusTopic(kafka.kafka)
    log.write([status])
    log.close()
    with serving(kafka.kafka, "job", 0) as port:
        assert port
        served = metrics | scraped(port)
    selectors = [each for query in dashboard.queries() for each in promql.parse(query)]
    assert {each.metric for each in selectors} <= set(served)
    for each in selectors:
        assert each.labels <= served[each.metric] | ADDED, each
    variable = dashboard.read_dashboard()["templating"]["list"][0]
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
    assert found
    assert found[2] in served[found[1]]

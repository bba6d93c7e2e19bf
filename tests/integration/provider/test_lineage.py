"""Lineage beside a real broker: the topics come from it, and no client is left when Airflow forks for an event."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer

from support.lineage_events import names, sent
from support.outlet_events import OutletEvents
from support.streams.identity_transform import deploy_identity
from support.streams.transform_job import unique
from wasmline.kafka import Topics
from wasmline.local.process import wait_until
from wasmline.registry import ArtifactMetadata, FilesystemRegistry
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.openlineage.settings import LISTENER
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.stream import SparkStreamOperator

LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the names of threads from Linux's /proc")


def clients() -> set[str]:
    """Return the number of the main thread of each Kafka client in this process, which ends after its others.

    A forked process that ends a client waits for its threads. Those of its brokers come and go: a client whose
    cluster has vanished, as other tests may have left one, starts one anew each second.
    """
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        try:
            name = (thread / "comm").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if name == "rdk:main\n":
            found.add(thread.name)
    return found


def test_a_stream_that_is_to_start_names_the_topics_of_its_deployment(connected: RunningKafka, tmp_path: Path) -> None:
    spec = deploy_identity(connected.config)
    task = SparkStreamOperator(task_id="one", job=spec.name, transform=spec.name, storage=str(tmp_path))
    event = sent(task.get_openlineage_facets_on_start())
    cluster = f"kafka://{connected.bootstrap_servers}"
    assert names(event["inputs"]) == {(cluster, spec.input_topic), (cluster, f"_wasmline.deployments/{spec.name}")}
    assert names(event["outputs"]) == {(cluster, spec.output_topics[0])}


def test_a_stream_whose_transform_is_not_deployed_names_its_deployment(connected: RunningKafka) -> None:
    task = SparkStreamOperator(task_id="one", job="j", transform="nothing", storage="/s")
    event = sent(task.get_openlineage_facets_on_start())
    assert [each["name"] for each in event["inputs"]] == ["_wasmline.deployments/nothing"]
    assert event["outputs"] == []


@LINUX
def test_no_client_is_left_when_the_lineage_of_a_stream_was_read(
    connected: RunningKafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = deploy_identity(connected.config)
    monkeypatch.setitem(sys.modules, LISTENER, ModuleType(LISTENER))
    before = clients()
    task = SparkStreamOperator(task_id="one", job=spec.name, transform=spec.name, storage=str(tmp_path))
    task._read_lineage()
    assert wait_until(lambda: clients() <= before, 10), clients() - before
    assert sent(task.get_openlineage_facets_on_complete(None))["outputs"]


@LINUX
def test_no_client_is_left_when_a_task_has_deployed(connected: RunningKafka, tmp_path: Path) -> None:
    name = unique("lineage")
    Topics(connected.config).create(f"{name}.in", 1)
    Topics(connected.config).create(f"{name}.out", 1)
    declared = {"input-topic": f"{name}.in", "output-topics": [f"{name}.out"]}
    FilesystemRegistry(str(tmp_path)).publish(name, "1.0.0", guest(), metadata=ArtifactMetadata(transform=declared))
    before = clients()
    task = WasmDeployOperator(task_id="one", name=name, registry=str(tmp_path), by="ada")
    context: Any = {
        "dag_run": SimpleNamespace(dag_id="dag"),
        "run_id": "run",
        "outlet_events": OutletEvents(),
    }
    result = task.execute(context)
    assert wait_until(lambda: clients() <= before, 10), clients() - before
    event = sent(task.get_openlineage_facets_on_complete(None))
    assert names(event["inputs"]) == {("file", f"{tmp_path}/modules/{name}")}
    assert event["outputs"][0]["facets"]["wasmline_deployment"]["digest"] == result["digest"]


@LINUX
def test_a_client_is_found() -> None:
    before = clients()
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    assert clients() - before
    consumer.close()

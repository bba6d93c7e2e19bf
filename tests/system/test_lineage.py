"""The lineage of the demo by OpenLineage's file transport, on a real Airflow: no edge is missing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.lineage_events import Json, names, require_valid_facets
from wasmline.kafka import Topics
from wasmline.testing.kafka import RunningKafka

DAG = "delivery_pipeline"

ROWS = 3_000

Names = set[tuple[str, str]]


@pytest.fixture(scope="module")
def transport(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file to which each process of Airflow appends its events."""
    return tmp_path_factory.mktemp("openlineage") / "events.jsonl"


@pytest.fixture(scope="module")
def airflow_settings(transport: Path) -> dict[str, str]:
    settings = {"type": "file", "log_file_path": str(transport), "append": True}
    return {
        "OPENLINEAGE__TRANSPORT": json.dumps(settings),
        "OPENLINEAGE__NAMESPACE": "tests",
        "OPENLINEAGE__EXECUTION_TIMEOUT": "120",  # of a busy machine
    }


@pytest.fixture(scope="module")
def run(airflow: Any) -> str:
    """A run of the demo, to its success."""
    airflow.api.request("PATCH", "/dags/watched_topics", {"is_paused": True})
    triggered: str = airflow.api.trigger(DAG, {"rows": ROWS, "report": str(airflow.home)})
    airflow.wait(DAG, triggered, timeout=1_800)
    return triggered


@pytest.fixture(scope="module")
def events(run: str, transport: Path) -> list[Json]:
    """Return the events of the tasks of the run."""
    events = [json.loads(line) for line in transport.read_text().splitlines()]
    return [each for each in events if each["run"]["facets"].get("airflow", {}).get("dagRun", {}).get("run_id") == run]


def of(events: list[Json], task: str, kind: str) -> Iterator[Json]:
    return (each for each in events if (each["job"]["name"], each["eventType"]) == (f"{DAG}.{task}", kind))


def completed(events: list[Json], task: str) -> Json:
    """Return the last event of a task."""
    (event,) = of(events, task, "COMPLETE")
    return event


def reached(edges: list[tuple[Names, Names]], start: tuple[str, str]) -> Names:
    """Return the datasets to which a dataset leads, by any number of edges."""
    found = {start}
    while more := {name for inputs, outputs in edges if inputs & found for name in outputs} - found:
        found |= more
    return found


@pytest.mark.long
def test_each_task_of_the_demo_joins_what_it_reads_to_what_it_writes(
    events: list[Json], airflow: Any, kafka: RunningKafka, run: str
) -> None:
    home = airflow.home
    cluster = f"kafka://{kafka.bootstrap_servers}"
    raw, features, predictions = (
        (cluster, name) for name in ("deliveries.raw", "deliveries.features", "deliveries.eta")
    )
    module, predictor = (("file", f"{home}/registry/modules/{name}") for name in ("delivery-distance", "delivery-eta"))
    deployment, prediction = (
        (cluster, f"_wasmline.deployments/{name}") for name in ("delivery-distance", "delivery-eta")
    )
    model = ("file", f"{home}/models/models/delivery-eta")
    built = airflow.api.xcom(DAG, run, "build")
    ((_, sources),) = names(completed(events, "build")["inputs"])
    assert Path(sources, "transform.yaml").exists()
    project = {("file", sources)}
    expected: dict[str, tuple[Names, Names]] = {
        "build": (project, {("file", built["path"])}),
        "test": (project, set()),
        "publish": (project, {module}),
        "deploy": ({module}, {deployment}),
        "stream": ({raw, deployment}, {features, (cluster, "deliveries.features.dlq")}),
        "train": ({features}, {model}),
        "promote": ({model}, {model}),
        "compile_model": ({model}, {predictor}),
        "deploy_model": ({predictor}, {prediction}),
        "predict": ({features, prediction}, {predictions, (cluster, "deliveries.eta.dlq")}),
    }
    found = {
        task: (names(event["inputs"]), names(event["outputs"]))
        for task in expected
        for event in [completed(events, task)]
    }
    assert found == expected
    edges = list(found.values())
    assert {features, model, predictor, prediction, predictions} <= reached(edges, raw)
    assert predictions in reached(edges, model)
    assert reached(edges, ("file", sources)) >= {module, deployment, features, model, predictions}


@pytest.mark.long
def test_a_stream_names_its_topics_when_it_starts_and_when_it_goes_on_after_it_was_deferred(events: list[Json]) -> None:
    for task in ("stream", "predict"):
        ended = completed(events, task)
        began = list(of(events, task, "START"))
        assert len(began) == 2
        for event in began:
            assert names(event["inputs"]) == names(ended["inputs"])
            assert names(event["outputs"]) == names(ended["outputs"])


@pytest.mark.long
def test_the_facets_have_the_digests_the_offsets_and_the_counts_of_the_run(
    events: list[Json], airflow: Any, kafka: RunningKafka, run: str
) -> None:
    results = {task: airflow.api.xcom(DAG, run, task) for task in ("publish", "stream", "train", "compile_model")}

    def facets(task: str, side: str, name: str) -> Json:
        (found,) = (each for each in completed(events, task)[side] if each["name"].endswith(name))
        merged: Json = {**found["facets"], **found.get(f"{side[:-1]}Facets", {})}
        return merged

    digest = results["publish"]["digest"]
    assert facets("publish", "outputs", "delivery-distance")["wasmline_module"]["digest"] == digest
    assert facets("deploy", "outputs", "delivery-distance")["wasmline_deployment"]["digest"] == digest
    assert facets("stream", "inputs", "delivery-distance")["wasmline_deployment"]["digest"] == digest
    assert completed(events, "stream")["run"]["facets"]["wasmline_job"]["digest"] == digest
    assert (
        facets("predict", "inputs", "delivery-eta")["wasmline_deployment"]["modelDigest"] == results["train"]["digest"]
    )
    assert facets("train", "outputs", "delivery-eta")["wasmline_model"]["digest"] == results["train"]["digest"]

    ranges = facets("stream", "inputs", "deliveries.raw")["wasmline_offsets"]["ranges"]
    assert {each["partition"]: (each["start"], each["end"]) for each in ranges} == {
        partition: (0, end) for partition, end in Topics(kafka.config).end_offsets("deliveries.raw").items()
    }
    assert facets("stream", "inputs", "deliveries.raw")["inputStatistics"]["rowCount"] == ROWS
    written = facets("stream", "outputs", "deliveries.features")["outputStatistics"]["rowCount"]
    assert written == results["stream"]["records_out"]
    fields = facets("train", "inputs", "deliveries.features")["schema"]["fields"]
    assert {each["name"]: each["type"] for each in fields} == results["train"]["dataset"]["fields"]


@pytest.mark.long
def test_every_event_is_sent_in_time_and_takes_the_published_schemas(
    events: list[Json], airflow: Any, run: str
) -> None:
    tasks = airflow.api.tasks(DAG, run)
    for task in tasks:
        assert list(of(events, task.task, "START")), task.task
        assert completed(events, task.task), task.task
        log = "\n".join(airflow.api.log(DAG, run, task))
        for trouble in ("will be terminated by listener", "failed to extract data", "Failed to emit", "has no topics"):
            assert trouble not in log, task.task
    assert not [each for each in events if each["eventType"] in ("FAIL", "ABORT")]
    own = {key for event in events for key in require_valid_facets(event)}
    assert own == {"wasmline_module", "wasmline_deployment", "wasmline_model", "wasmline_offsets", "wasmline_job"}

"""What each operator tells OpenLineage: before it runs, once it has a result, and if it fails."""

import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from support.gated_models import METRICS, publish_gated
from support.lineage_events import Json, names, require_valid_facets, sent
from wasmline.control import Deployment, DeploymentSpec
from wasmline.documents import plain
from wasmline.errors import BrokerUnavailable
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig
from wasmline.model_reference import ModelReference
from wasmline.training import GatePolicy
from wasmline_provider.openlineage import deployment_reader
from wasmline_provider.openlineage.settings import LISTENER
from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator
from wasmline_provider.operators.check_streams import CheckStreamsOperator
from wasmline_provider.operators.deploy import WasmDeployOperator, WasmRollbackOperator
from wasmline_provider.operators.model import (
    CompileModelOperator,
    PromoteModelOperator,
    RollbackModelOperator,
    TrainModelOperator,
)
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.operators.redrive import RedriveDeadLettersOperator
from wasmline_provider.operators.stream import SparkStreamOperator

CLUSTER = "kafka://kafka:9093"

DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"

DEPLOYMENT = Deployment(
    spec=DeploymentSpec(
        name="t", version="1.2.0", digest=DIGEST, input_topic="raw", output_topics=("out",), dead_letter_topic="out.dlq"
    ),
    generation=3,
    state="running",
    updated_ms=1,
)

DEPLOYED = {"name": "t", "version": "1.2.0", "digest": DIGEST, "generation": 3, "state": "running"}


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "Kafka:9093,kafka2:9093"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let DEPLOYMENT be that of each transform; return the transforms whose deployment was read."""
    read: list[str] = []

    def find(config: KafkaConfig, transform: str) -> Deployment:
        assert config.bootstrap_servers == "Kafka:9093,kafka2:9093"
        read.append(transform)
        return DEPLOYMENT

    monkeypatch.setattr(deployment_reader, "_find", find)
    return read


def at_start(task: MultipleOutputsOperator) -> Json:
    return sent(task.get_openlineage_facets_on_start())


def at_end(task: MultipleOutputsOperator, result: dict[str, Any]) -> Json:
    assert task._returns(result) is result
    return sent(task.get_openlineage_facets_on_complete(None))


def edges(event: Json) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the names of what a task reads and writes; its facets take their schemas."""
    require_valid_facets(event)
    return names(event["inputs"]), names(event["outputs"])


def dataset(event: Json, name: str) -> Json:
    """Return the only dataset of that name."""
    (found,) = (each for each in (*event["inputs"], *event["outputs"]) if each["name"] == name)
    known: Json = found
    return known


def facts(facet: Json) -> Json:
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def test_a_build_reads_the_project_and_writes_a_module_on_the_worker() -> None:
    task = WasmBuildOperator(task_id="one", project="/src/t")
    assert edges(at_start(task)) == ({("file", "/src/t")}, set())
    report = {
        "name": "t",
        "version": None,
        "digest": DIGEST,
        "size_bytes": 7,
        "path": "/cache/t.wasm",
        "abi": 2,
        "language": "cpp",
        "toolchain": "zig 0.17.0",
        "source_digest": OTHER,
        "source_revision": None,
    }
    event = at_end(task, report)
    assert edges(event) == ({("file", "/src/t")}, {("file", "/cache/t.wasm")})
    assert facts(dataset(event, "/cache/t.wasm")["facets"]["wasmline_module"]) == {
        "name": "t",
        "digest": DIGEST,
        "sizeBytes": 7,
        "abi": 2,
        "language": "cpp",
        "toolchain": "zig 0.17.0",
        "sourceDigest": OTHER,
    }


def test_a_test_reads_the_project() -> None:
    task = WasmTestOperator(task_id="one", project="/src/t")
    assert edges(at_start(task)) == edges(at_end(task, {"digest": DIGEST})) == ({("file", "/src/t")}, set())


def test_a_publication_writes_a_version_in_the_registry() -> None:
    task = WasmPublishOperator(task_id="one", project="/src/t", registry="s3://bucket/registry")
    assert edges(at_start(task)) == ({("file", "/src/t")}, set()), "the name of the module is in the project"
    event = at_end(task, {"name": "t", "version": "1.2.0", "digest": DIGEST, "size_bytes": 7})
    assert edges(event) == ({("file", "/src/t")}, {("s3://bucket", "registry/modules/t")})
    module = dataset(event, "registry/modules/t")["facets"]
    assert module["version"]["datasetVersion"] == "1.2.0"
    assert module["wasmline_module"]["digest"] == DIGEST
    assert module["dataSource"]["uri"] == "s3://bucket"


def test_a_deployment_joins_the_module_in_the_registry_to_the_cluster() -> None:
    task = WasmDeployOperator(task_id="one", name="t", registry="/registry")
    joined = ({("file", "/registry/modules/t")}, {(CLUSTER, "_wasmline.deployments/t")})
    assert edges(at_start(task)) == joined
    event = at_end(task, {**DEPLOYED, "is_new": True})
    assert edges(event) == joined
    assert facts(dataset(event, "_wasmline.deployments/t")["facets"]["wasmline_deployment"]) == DEPLOYED
    assert dataset(event, "_wasmline.deployments/t")["facets"]["version"]["datasetVersion"] == "3"
    assert dataset(event, "/registry/modules/t")["facets"]["version"]["datasetVersion"] == "1.2.0"
    assert edges(sent(task.get_openlineage_facets_on_failure(None))) == joined


def test_a_rollback_writes_the_deployment() -> None:
    task = WasmRollbackOperator(task_id="one", name="t", reason="r")
    assert edges(at_start(task)) == edges(at_end(task, DEPLOYED)) == (set(), {(CLUSTER, "_wasmline.deployments/t")})


def stream(**options: Any) -> SparkStreamOperator:
    return SparkStreamOperator(task_id="one", job="j", storage="/s", **{"transform": "t", **options})


STREAMED = (
    {(CLUSTER, "raw"), (CLUSTER, "_wasmline.deployments/t")},
    {(CLUSTER, "out"), (CLUSTER, "out.dlq")},
)


def test_a_stream_for_ever_names_its_topics_when_it_starts(deployed: list[str]) -> None:
    event = at_start(stream(trigger_interval="1 second"))
    assert edges(event) == STREAMED
    assert facts(event["job"]["facets"]["wasmline_job"]) == {
        "job": "j",
        "processingType": "STREAMING",
        "consumerGroup": "wasmline.j",
        "transform": "t",
        "mode": "microbatch",
        "delivery": "at_least_once",
    }
    assert "wasmline_job" not in event["run"]["facets"], "it has no run yet"
    assert facts(dataset(event, "_wasmline.deployments/t")["facets"]["wasmline_deployment"]) == {
        "name": "t",
        "version": "1.2.0",
        "digest": DIGEST,
        "generation": 3,
    }
    assert deployed == ["t"]


BATCHES = [
    {"records_in": 3, "offsets": {"0": [0, 2], "1": [5, 6]}},
    {"records_in": 2, "offsets": {"0": [2, 4], "1": [6, 6]}},
]

TOTALS = {
    "transform": "t",
    "digest": DIGEST,
    "generation": 3,
    "partitions": 2,
    "records_in": 5,
    "records_out": 4,
    "dead_letters": {"Rejected": 1},
    "lost_offsets": 0,
    "batches": BATCHES,
}

RUN = {"job": "j", "run": "r", "log": "driver.log"}


def complete(task: SparkStreamOperator, totals: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the result of a deferred task that goes on once its run has ended, as Airflow resumes it."""
    report = JobReport.now("j", "r", JobState.SUCCEEDED, result=totals)
    client = SimpleNamespace(report=lambda run: report, close=lambda: None)
    monkeypatch.setattr("wasmline.control.JobTopic", lambda config: None)
    monkeypatch.setattr("wasmline_provider.job_client.JobClient", lambda topic, heartbeat: client)
    context: Any = {"task_state_store": SimpleNamespace(get=lambda key: {**RUN, "action": "started"})}
    return task.execute_complete(context, {**RUN, "state": "succeeded"})


def test_a_deferred_stream_tells_what_its_run_has_read_and_written(
    deployed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, LISTENER, ModuleType(LISTENER))
    task = stream(deferrable=True)
    complete(task, TOTALS, monkeypatch)
    assert deployed == ["t"], "it is read before Airflow forks the process of the event"
    event = sent(task.get_openlineage_facets_on_complete(None))
    assert deployed == ["t"]
    assert edges(event) == STREAMED
    read = dataset(event, "raw")["inputFacets"]
    assert read["inputStatistics"]["rowCount"] == 5
    assert read["wasmline_offsets"]["ranges"] == [
        {"partition": 0, "start": 0, "end": 4},
        {"partition": 1, "start": 5, "end": 6},
    ]
    written = {
        name: dataset(event, name)["outputFacets"]["outputStatistics"]["rowCount"] for name in ("out", "out.dlq")
    }
    assert written == {"out": 4, "out.dlq": 1}
    assert facts(event["run"]["facets"]["wasmline_job"]) == {
        "job": "j",
        "run": "r",
        "state": "succeeded",
        "action": "started",
        "digest": DIGEST,
        "generation": 3,
        "recordsIn": 5,
        "recordsOut": 4,
        "deadLetters": {"Rejected": 1},
    }


def test_offsets_of_a_report_that_lacks_some_batches_are_left_out(
    deployed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, LISTENER, ModuleType(LISTENER))
    task = stream(deferrable=True)
    complete(task, {**TOTALS, "batches": BATCHES[1:]}, monkeypatch)
    assert list(dataset(sent(task.get_openlineage_facets_on_complete(None)), "raw")["inputFacets"]) == [
        "inputStatistics"
    ]


def test_a_stream_reads_no_deployment_where_airflow_sends_no_events(
    deployed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = complete(stream(deferrable=True), TOTALS, monkeypatch)
    assert (result["records_out"], result["batches"]) == (4, 2)
    assert deployed == []


def test_a_stream_that_a_newer_run_replaced_names_its_topics(
    deployed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, LISTENER, ModuleType(LISTENER))
    task = stream(trigger_interval="1 second", deferrable=True)
    task.execute_complete({}, {**RUN, "state": "replaced", "message": "why", "replaced_by": "newer"})
    event = sent(task.get_openlineage_facets_on_complete(None))
    assert edges(event) == STREAMED
    assert facts(event["run"]["facets"]["wasmline_job"]) == {"job": "j", "run": "r", "state": "replaced"}


def test_a_stream_whose_outputs_cannot_be_told_apart_has_no_count_of_each(
    deployed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = DeploymentSpec(
        name="t",
        version="1.2.0",
        digest=DIGEST,
        input_topic="raw",
        output_topics=("out", "more", "rejected"),
        dead_letter_topic="rejected",
        model=ModelReference(name="eta", version="2.0.0", digest=OTHER, dataset=DIGEST),
    )
    task = stream()
    task._deployment = Deployment(spec=spec, generation=3, state="running", updated_ms=1)
    task._returns({"job": "j", "run": "r", "state": "succeeded", **TOTALS})
    event = sent(task.get_openlineage_facets_on_complete(None))
    assert [each["name"] for each in event["outputs"]] == ["out", "more", "rejected"]
    *outputs, rejected = (each["outputFacets"] for each in event["outputs"])
    assert outputs == [{}, {}]
    assert rejected["outputStatistics"]["rowCount"] == 1
    known = dataset(event, "_wasmline.deployments/t")["facets"]["wasmline_deployment"]
    assert (known["model"], known["modelDigest"]) == ("eta@2.0.0", OTHER)


def test_a_broker_that_cannot_be_read_costs_the_topics_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()

    def unavailable(config: KafkaConfig, transform: str) -> None:
        raise BrokerUnavailable("no broker answers")

    for find, execution_timeout in ((unavailable, "60"), (lambda config, transform: ended.wait(), "1")):
        monkeypatch.setattr(deployment_reader, "_find", find)
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT", execution_timeout)
        assert edges(at_start(stream())) == ({(CLUSTER, "_wasmline.deployments/t")}, set())
    ended.set()
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        "the lineage of t has no topics: no broker answers",
        "the lineage of t has no topics: no answer within 0 s",
    ]


def test_a_stream_of_a_function_names_the_topics_that_its_task_names() -> None:
    task = stream(transform=None, function="m:f", mode="parallel", topic="orders", dead_letter_topic="orders.dlq")
    event = at_start(task)
    assert edges(event) == ({(CLUSTER, "orders")}, {(CLUSTER, "orders.dlq")})
    assert event["job"]["facets"]["wasmline_job"]["function"] == "m:f"


TRAIN: dict[str, Any] = {
    "job": "j",
    "storage": "/s",
    "model": "eta",
    "topic": "features",
    "models": "/models",
    "target": "minutes",
    "fields": {"id": "string", "km": "double", "minutes": "double"},
    "features": ["km"],
    "identity": "id",
    "units": {"km": "km"},
}

TRAINED: dict[str, Any] = {
    "model": "eta",
    "version": "1.0.0",
    "digest": DIGEST,
    "dataset_digest": OTHER,
    "metrics": plain(METRICS),
    "dataset": {"topic": "features", "offsets": {"0": [0, 10, 20, 30]}},
    "champion": None,
    "champion_metrics": None,
    "decision": {"decision": "promote", "reason": "no champion yet"},
    "policy": plain(GatePolicy()),
    "job": "j",
    "run": "r",
    "state": "succeeded",
    "action": "started",
}


def test_a_training_reads_exact_offsets_and_writes_a_version_with_its_metrics() -> None:
    task = TrainModelOperator(task_id="one", **TRAIN)
    joined = ({(CLUSTER, "features")}, {("file", "/models/models/eta")})
    assert edges(at_start(task)) == joined
    event = at_end(task, TRAINED)
    assert edges(event) == joined
    topic, model = dataset(event, "features"), dataset(event, "/models/models/eta")
    assert [(each["name"], each["type"]) for each in topic["facets"]["schema"]["fields"]] == list(
        TRAIN["fields"].items()
    )
    assert topic["facets"]["schema"]["fields"][1]["description"] == "km"
    assert topic["inputFacets"]["wasmline_offsets"]["ranges"] == [
        {"partition": 0, "start": 0, "end": 10},
        {"partition": 0, "start": 20, "end": 30},
    ]
    assert model["facets"]["datasetType"]["datasetType"] == "MODEL"
    assert model["facets"]["version"]["datasetVersion"] == "1.0.0"
    known = facts(model["facets"]["wasmline_model"])
    assert known["metrics"]["rmse"] == METRICS.rmse
    assert (known["digest"], known["datasetDigest"], known["decision"]) == (DIGEST, OTHER, "promote")
    assert facts(event["run"]["facets"]["wasmline_job"]) == {
        name: TRAINED[name] for name in ("job", "run", "state", "action")
    }


def test_a_promotion_writes_the_model_whose_champion_it_changes_and_a_champion_that_is_kept_is_no_output(
    tmp_path: Path,
) -> None:
    models = str(tmp_path)
    (version,) = publish_gated(models, 12)
    context: Any = {"dag_run": SimpleNamespace(triggering_user_name=None)}
    model = ("file", f"{models}/models/eta")
    for answer, outputs in (({"rejection_reason": "no", "by": "bob"}, set()), ({}, {model})):
        task = PromoteModelOperator(task_id="one", trained={**TRAINED, "version": version}, models=models, **answer)
        assert edges(at_start(task)) == ({model}, {model})
        result = task.execute(context)
        event = sent(task.get_openlineage_facets_on_complete(None))
        assert edges(event) == ({model}, outputs)
    known = event["outputs"][0]["facets"]["wasmline_model"]
    assert (known["champion"], known["decision"], known["reason"]) == (version, "promote", result["reason"])


def test_a_compilation_joins_the_model_to_the_module_in_the_registry() -> None:
    task = CompileModelOperator(
        task_id="one",
        models="s3://b/m",
        model="eta",
        registry="s3://b/r",
        transform="serve-eta",
        input_topic="features",
        output_topic="out",
        dead_letter_topic="out.dlq",
    )
    joined = ({("s3://b", "m/models/eta")}, {("s3://b", "r/modules/serve-eta")})
    assert edges(at_start(task)) == joined
    model = {"name": "eta", "version": "2.0.0", "digest": OTHER, "dataset": DIGEST}
    event = at_end(
        task, {"name": "serve-eta", "version": "2.0.0", "digest": DIGEST, "size_bytes": 7, "model": model, "proof": {}}
    )
    assert edges(event) == joined
    assert dataset(event, "m/models/eta")["facets"]["wasmline_model"]["digest"] == OTHER
    assert dataset(event, "r/modules/serve-eta")["facets"]["wasmline_module"]["digest"] == DIGEST


def test_a_rollback_of_a_model_writes_the_model_and_the_deployments_that_it_moves() -> None:
    task = RollbackModelOperator(task_id="one", model="eta", models="/m", registry="/r", reason="r")
    model = ("file", "/m/models/eta")
    assert edges(at_start(task)) == ({model}, {model})
    done = {"version": "1.0.0", "reason": "r", "deployments": [{"name": "eta", "generation": 4}]}
    event = at_end(task, done)
    assert edges(event) == ({model}, {model, (CLUSTER, "_wasmline.deployments/eta")})
    assert event["outputs"][0]["facets"]["wasmline_model"]["champion"] == "1.0.0"


@pytest.mark.parametrize(
    ("arguments", "inputs", "outputs"),
    [
        ({}, [], []),
        ({"source_topic": "raw"}, [], ["raw"]),
        ({"to_topic": "again"}, [], ["again"]),
        ({"through": "t"}, ["_wasmline.deployments/t"], []),
    ],
)
def test_a_redrive_reads_the_dead_letters(arguments: dict[str, Any], inputs: list[str], outputs: list[str]) -> None:
    task = RedriveDeadLettersOperator(task_id="one", topic="dlq", reason="r", **arguments)
    joined = ({(CLUSTER, name) for name in ("dlq", *inputs)}, {(CLUSTER, name) for name in outputs})
    assert edges(at_start(task)) == joined
    event = at_end(task, {"dead_letters": 7})
    assert edges(event) == joined
    assert dataset(event, "dlq")["inputFacets"]["inputStatistics"]["rowCount"] == 7


def test_a_task_without_a_dataset_leaves_its_lineage_to_its_inlets_and_outlets() -> None:
    event = at_start(CheckStreamsOperator(task_id="one", jobs=["j"]))
    assert edges(event) == (set(), set())


WITHOUT_OPENLINEAGE = """
import sys
sys.modules["openlineage"] = sys.modules["airflow.providers.openlineage.extractors"] = None
from wasmline_provider.operators import build, deploy, model, redrive, stream
from wasmline_provider.openlineage.settings import sends_lineage
task = stream.SparkStreamOperator(task_id="one", job="j", storage="/s", transform="t")
task._returns({})
task._read_lineage()
assert not sends_lineage()
"""


def test_operators_run_where_openlineage_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_OPENLINEAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""What cannot work is refused when a DAG is parsed; templates are left to the task."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, TaskGroup
from airflow.sdk.exceptions import AirflowFailException

from wasmline.errors import (
    InvalidJob,
    InvalidProject,
    InvalidRedrive,
    InvalidReference,
    InvalidSpec,
    InvalidTrainSpec,
    WasmlineError,
)
from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator
from wasmline_provider.operators.check_streams import CheckStreamsOperator
from wasmline_provider.operators.deploy import WasmDeployOperator, WasmPauseOperator, WasmRollbackOperator
from wasmline_provider.operators.job_actions import DeleteJobOperator, SetProgressOperator, StopJobOperator
from wasmline_provider.operators.model import CheckModelServingOperator, CompileModelOperator, RollbackModelOperator
from wasmline_provider.operators.redrive import RedriveDeadLettersOperator
from wasmline_provider.operators.stream import SparkStreamOperator
from wasmline_provider.sensors.deployment import WasmDeploymentSensor
from wasmline_provider.triggers.dead_stream import DeadStreamTrigger
from wasmline_provider.triggers.retrain import RetrainTrigger

Arguments = dict[str, Any]


class Wrong(SparkStreamOperator):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        raise ValueError("no whole number")


PROJECT: Arguments = {"project": "p", "registry": "/r"}
DEPLOY: Arguments = {"name": "t", "registry": "/r"}
TRANSFORM: Arguments = {"name": "t", "reason": "why"}
STREAM: Arguments = {"job": "j", "storage": "/s", "transform": "t"}
JOB: Arguments = {"job": "j", "reason": "why"}
REDRIVE: Arguments = {"topic": "t.dlq", "reason": "why"}
WATCH: Arguments = {"name": "t", "generation": 1}
MODEL: Arguments = {"model": "m", "models": "/ms", "registry": "/r"}
COMPILE: Arguments = {**MODEL, "input_topic": "a", "output_topic": "b", "dead_letter_topic": "c"}
SCHEMA: Arguments = {"id": 1, "definition": "{}", "format": "avro"}

CASES: list[tuple[type[BaseOperator], Arguments, Arguments, type[WasmlineError], str]] = [
    (WasmBuildOperator, {}, {"project": ""}, InvalidProject, "project is '': it must be set"),
    (WasmPublishOperator, PROJECT, {"version": "1"}, InvalidReference, "'1' is not a semantic version"),
    (WasmDeployOperator, DEPLOY, {"name": "a b"}, InvalidSpec, "name is 'a b': a name has letters"),
    (WasmDeployOperator, DEPLOY, {"version": "new"}, InvalidReference, "'new' is not a semantic version"),
    (WasmDeployOperator, DEPLOY, {"input_topic": "a/b"}, InvalidSpec, "input_topic is 'a/b'"),
    (WasmDeployOperator, DEPLOY, {"max_failure_share": 2}, InvalidSpec, "max_failure_share must be a number from 0 to"),
    (WasmDeployOperator, DEPLOY, {"expected_generation": "x"}, InvalidSpec, "a whole number of at least 0, got 'x'"),
    (WasmDeployOperator, DEPLOY, {"clock": "wall"}, InvalidSpec, "clock is 'wall': one of wasmline, redpanda"),
    (WasmDeployOperator, DEPLOY, {"schemas": [{**SCHEMA, "name": "x"}]}, InvalidSpec, "a schema has name: its fields"),
    (WasmDeployOperator, DEPLOY, {"schemas": [{"id": 1}]}, InvalidSpec, "a schema has no definition, format"),
    (
        WasmDeployOperator,
        DEPLOY,
        {"output_topics": "abc"},
        InvalidSpec,
        r"is 'abc': a list of texts, such as \['abc'\]",
    ),
    (WasmDeployOperator, DEPLOY, {"output_topics": [1]}, InvalidSpec, "output_topics is .* a list of texts"),
    (WasmDeployOperator, DEPLOY, {"env": {"LIMIT": 5}}, InvalidSpec, "env has 'LIMIT': 5; write each as text"),
    (WasmDeployOperator, DEPLOY, {"env": ["A=1"]}, InvalidSpec, "env is .* a mapping"),
    (CheckStreamsOperator, {}, {"jobs": "celsius"}, InvalidJob, "jobs is 'celsius': a list of texts"),
    (SparkStreamOperator, STREAM, {"conf": "spark.cores.max=2"}, InvalidJob, "conf is 'spark.cores.max=2': a mapping"),
    (SparkStreamOperator, STREAM, {"spark_options": ["x"]}, InvalidJob, "spark_options is .* a mapping"),
    (WasmRollbackOperator, TRANSFORM, {"reason": " "}, InvalidSpec, "reason is ' ': it must be set"),
    (WasmRollbackOperator, TRANSFORM, {"version": "1.0.0", "generation": 3}, InvalidSpec, "name one of them"),
    (WasmRollbackOperator, TRANSFORM, {"pause_if_refused": True}, InvalidSpec, "needs expected_generation"),
    (WasmPauseOperator, TRANSFORM, {"name": ""}, InvalidSpec, "name is ''"),
    (WasmPauseOperator, TRANSFORM, {"reason": ""}, InvalidSpec, "reason is ''"),
    (WasmDeploymentSensor, WATCH, {"generation": "last"}, InvalidSpec, "generation must be a whole number"),
    (WasmDeploymentSensor, WATCH, {"generation": float("inf")}, InvalidSpec, "generation must be a whole number"),
    (WasmDeploymentSensor, WATCH, {"minutes": "nan"}, InvalidSpec, "minutes must be a number of at least 0, got 'nan'"),
    (WasmDeploymentSensor, WATCH, {"minutes": -1}, InvalidSpec, "minutes must be a number of at least 0"),
    (WasmDeploymentSensor, WATCH, {"minutes": None}, InvalidSpec, "minutes is None: it must be set"),
    (WasmDeployOperator, DEPLOY, {"models": "models"}, InvalidSpec, "models is 'models', neither"),
    (CheckStreamsOperator, {}, {"jobs": None}, InvalidJob, "jobs is None: a list of texts"),
    (WasmDeploymentSensor, WATCH, {"max_dead_letter_share": 5}, InvalidSpec, "max_dead_letter_share must be a number"),
    (SparkStreamOperator, {**STREAM, "transform": "{{ t }}"}, {"job": "a b"}, InvalidJob, "'a b' is not a job name"),
    (SparkStreamOperator, {**STREAM, "mode": "{{ m }}"}, {"transform": "a b"}, InvalidJob, "transform is 'a b'"),
    (SparkStreamOperator, STREAM, {"storage": ""}, InvalidJob, "storage is ''"),
    (SparkStreamOperator, STREAM, {"storage": "data"}, InvalidJob, "storage is 'data', neither an absolute folder nor"),
    (SparkStreamOperator, STREAM, {"storage": "file://data"}, InvalidJob, "storage is 'file://data', neither"),
    (SparkStreamOperator, STREAM, {"storage": Path("data")}, InvalidJob, "storage is .*: it must be set, as text"),
    (SparkStreamOperator, STREAM, {"lease_seconds": 60}, InvalidJob, "lease_seconds: for mode parallel only"),
    (WasmPublishOperator, PROJECT, {"registry": "modules"}, InvalidReference, "registry is 'modules', neither"),
    (SparkStreamOperator, STREAM, {"heartbeat_seconds": 0}, InvalidJob, "heartbeat_seconds must be a number"),
    (DeleteJobOperator, JOB, {"job": "a b"}, InvalidJob, "'a b' is not a job name"),
    (StopJobOperator, JOB, {"timeout_seconds": "soon"}, InvalidJob, "timeout_seconds must be a number"),
    (SetProgressOperator, {**JOB, "to": "end"}, {"partitions": "0, one"}, InvalidJob, "partitions must be numbers"),
    (SetProgressOperator, JOB, {"to": 5}, InvalidJob, "to is 5: it must be set, as text"),
    (CheckStreamsOperator, {}, {"jobs": ["ok", "a b"]}, InvalidJob, "'a b' is not a job name"),
    (CheckStreamsOperator, {"jobs": ["j"]}, {"window_seconds": -1}, InvalidJob, "window_seconds must be a number"),
    (RedriveDeadLettersOperator, REDRIVE, {"through": "a b"}, InvalidRedrive, "through is 'a b'"),
    (RedriveDeadLettersOperator, REDRIVE, {"through": "t", "to_topic": "u"}, InvalidRedrive, "name one of them"),
    (CompileModelOperator, COMPILE, {"output_topic": "a b"}, InvalidReference, "output_topic is 'a b'"),
    (CompileModelOperator, COMPILE, {"version": "live"}, InvalidReference, "'live' is not a semantic version"),
    (RollbackModelOperator, MODEL, {"reason": ""}, InvalidReference, "reason is ''"),
    (CheckModelServingOperator, MODEL, {"model": "a b"}, InvalidReference, "model is 'a b'"),
]


@pytest.mark.parametrize(("operator", "valid", "wrong", "error", "told"), CASES)
def test_what_cannot_work_is_refused_when_the_dag_is_parsed_and_a_template_is_not(
    operator: type[BaseOperator], valid: Arguments, wrong: Arguments, error: type[WasmlineError], told: str
) -> None:
    with pytest.raises(error, match=told):
        operator(task_id="one", **{**valid, **wrong})
    templates = {name: f"{{{{ params.{name} }}}}" for name in wrong}
    if templates.keys() <= set(operator.template_fields):
        operator(task_id="two", **{**valid, **templates})


def test_what_a_template_renders_is_checked_when_the_task_runs() -> None:
    watch = WasmDeploymentSensor(task_id="one", name="t", generation="{{ params.generation }}")
    watch.generation = "last"
    with pytest.raises(AirflowFailException, match="InvalidSpec: generation must be a whole number"):
        watch.poke({})
    deploy = WasmDeployOperator(task_id="two", name="t", registry="/r", version="{{ params.version }}")
    deploy.version = "new"
    with pytest.raises(AirflowFailException, match="InvalidReference: 'new' is not"):
        deploy.execute({})


def test_the_task_whose_arguments_are_refused_is_named() -> None:
    with pytest.raises(InvalidJob) as refused:
        SparkStreamOperator(task_id="celsius", **{**STREAM, "storage": ""})
    assert refused.value.__notes__ == ["SparkStreamOperator, task 'celsius'"]
    assert pickle.loads(pickle.dumps(refused.value)).__notes__ == refused.value.__notes__
    with DAG("grouped", schedule=None), TaskGroup("north"), pytest.raises(ValueError, match="no whole") as wrong:
        Wrong(task_id="celsius", **STREAM)
    assert wrong.value.__notes__ == ["Wrong, task 'north.celsius'"]


@pytest.mark.parametrize("mode", [None, "", "None"])
def test_a_mode_that_is_nothing_is_the_default(mode: str | None) -> None:
    assert SparkStreamOperator(task_id="one", **STREAM, mode=mode, max_offsets_per_trigger=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["hdfs://nn:8020/x", "dbfs:/x", "file:///x", "abfs://c@a/x", "s3://b/x", "{{ url }}"])
def test_a_storage_may_be_any_url(url: str) -> None:
    SparkStreamOperator(task_id="one", **{**STREAM, "storage": url})


def test_results_of_other_tasks_are_left_to_the_run() -> None:
    with DAG("late", schedule=None):
        deploy = WasmDeployOperator(task_id="deploy", name="t", registry="/r")
        watch = WasmDeploymentSensor(
            task_id="watch", name=deploy.output["name"], generation=deploy.output["generation"]
        )
        check = CheckStreamsOperator(task_id="check", jobs=[deploy.output["name"]])
    assert (watch.upstream_task_ids, check.upstream_task_ids) == ({"deploy"}, {"deploy"})


def test_a_trigger_watches_no_name_that_a_job_cannot_have() -> None:
    with pytest.raises(InvalidJob, match="'a b' is not a job name"):
        DeadStreamTrigger(jobs=["a b"])
    for jobs in ("celsius", "None", "", "{{ jobs }}", None, [None]):
        with pytest.raises(InvalidJob, match=r"jobs is .*: a list of texts"):
            DeadStreamTrigger(jobs=jobs)  # type: ignore[arg-type]
    with pytest.raises(InvalidTrainSpec, match="models is 'models', neither an absolute folder"):
        RetrainTrigger(model="m", topic="t", models="models", new_records=5)

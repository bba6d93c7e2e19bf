"""Results by key: ``task.output["version"]``."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, XComArg, task, task_group
from airflow.sdk.definitions.xcom_arg import serialize_xcom_arg
from airflow.serialization.serialized_objects import DagSerialization

from wasmline.build import BuildReport, SampleReport
from wasmline.job_specs import StreamTotals
from wasmline.training import TrainResult
from wasmline.training.model_publisher import PublishedModel
from wasmline_provider.get_provider_info import get_provider_info
from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.job import SparkJobOperator
from wasmline_provider.operators.model import TOO_LARGE, CompileModelOperator, TrainModelOperator
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.operators.stream import SparkStreamOperator
from wasmline_provider.operators.user_action import UserActionOperator

INFO = get_provider_info()
BASES = {MultipleOutputsOperator, SparkJobOperator, UserActionOperator}
"""Operators whose keys are those of their subclasses."""

OPERATORS = [
    found
    for kind in ("operators", "sensors")
    for integration in INFO[kind]
    for module in integration["python-modules"]
    for found in vars(import_module(module)).values()
    if inspect.isclass(found) and issubclass(found, BaseOperator) and found.__module__ == module
    if not found.__name__.startswith("_") and found not in BASES
]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_each_operator_names_the_keys_of_its_result(operator: type[MultipleOutputsOperator]) -> None:
    text = inspect.getdoc(operator) or ""
    assert operator.output_keys
    assert not [key for key in operator.output_keys if f"``{key}``" not in text and key not in COMMON]


COMMON = ("changed", "replaced_by")
"""Keys of some results, which SparkJobOperator explains."""


@pytest.mark.parametrize(
    ("operator", "document", "more"),
    [
        (WasmBuildOperator, BuildReport, set()),
        (WasmTestOperator, SampleReport, {"digest"}),
        (CompileModelOperator, PublishedModel, set()),
        (SparkStreamOperator, StreamTotals, {"job", "run", "state", "action", *COMMON}),
        (TrainModelOperator, TrainResult, {"job", "state", "action", "skipped", *COMMON}),
    ],
)
def test_the_keys_are_the_fields_of_what_is_returned(
    operator: type[MultipleOutputsOperator], document: type, more: set[str]
) -> None:
    fields = {name for name in document.__dataclass_fields__ if name not in TOO_LARGE}  # type: ignore[attr-defined]
    assert set(operator.output_keys) == fields | more


def test_an_unknown_key_is_refused_when_the_dag_is_parsed() -> None:
    publish = WasmPublishOperator(task_id="publish", project="p", registry="/r")
    with pytest.raises(ValueError, match="publish has no key 'verison': WasmPublishOperator returns name, version, "):
        publish.output["verison"]


@pytest.mark.parametrize("name", ["multiple_outputs", "do_xcom_push"])
def test_a_key_of_a_task_that_pushes_none_is_refused_when_the_dag_is_parsed(name: str) -> None:
    options: dict[str, Any] = {name: False}
    publish = WasmPublishOperator(task_id="publish", project="p", registry="/r", **options)
    with pytest.raises(ValueError, match=f"publish has {name}=False and pushes no key 'version': remove that"):
        publish.output["version"]


def test_pushing_each_key_can_be_turned_off_for_a_task_and_for_a_dag() -> None:
    assert WasmBuildOperator(task_id="one", project="p").multiple_outputs
    assert not WasmBuildOperator(task_id="one", project="p", multiple_outputs=False).multiple_outputs
    with DAG("off", schedule=None, default_args={"multiple_outputs": False}):
        assert not WasmBuildOperator(task_id="one", project="p").multiple_outputs
        assert not SparkStreamOperator(task_id="two", job="j", storage="/s", transform="t").multiple_outputs


class Release(WasmBuildOperator):
    """Returns what a build does, without building."""

    def execute(self, context: Any) -> dict[str, Any]:
        return {"name": "t", "version": None, "digest": "sha256:1", "flags": ["-O2"]}


def test_each_key_and_the_whole_are_arguments_of_other_tasks(run_dag: Callable[..., Any]) -> None:
    found: list[Any] = []
    with DAG("keys", schedule=None) as dag:
        build = Release(task_id="build", project="p")

        @task
        def read(digest: str, version: str | None, whole: Any) -> None:
            found.append((digest, version, whole["flags"]))

        read(build.output["digest"], build.output["version"], build.output)
    assert run_dag(dag).state == "success"
    assert found == [("sha256:1", None, ["-O2"])]


class Marked(WasmBuildOperator):
    """Returns nothing, as a task that a user has marked as successful."""

    def execute(self, context: Any) -> None:  # type: ignore[override]
        """Do nothing."""


class Earlier(Release):
    """Pushes only the whole result, as an earlier release did."""

    def execute(self, context: Any) -> None:  # type: ignore[override]
        context["ti"].xcom_push("return_value", super().execute(context))


class Stream(SparkStreamOperator):
    """Returns the results of a stream that was replaced."""

    def execute(self, context: Any) -> dict[str, Any]:
        return {"state": "replaced", "job": "j", "run": "r", "replaced_by": "newer"}


def read_key(run_dag: Callable[..., Any], upstream: Callable[[], MultipleOutputsOperator], key: str) -> list[Any]:
    """Return what a task reads of the key, nothing if it fails."""
    found: list[Any] = []
    with DAG("one_key", schedule=None) as dag:

        @task
        def read(value: Any) -> None:
            found.append(value)

        read(upstream().output[key])
    assert run_dag(dag).state == ("success" if found else "failed")
    return found


@pytest.mark.parametrize("operator", [Release, Earlier])
@pytest.mark.parametrize(("key", "value"), [("digest", "sha256:1"), ("version", None)])
def test_a_key_is_read_from_the_whole_result_if_only_that_was_pushed(
    run_dag: Callable[..., Any], operator: type[WasmBuildOperator], key: str, value: Any
) -> None:
    assert read_key(run_dag, lambda: operator(task_id="build", project="p"), key) == [value]


@pytest.mark.parametrize(
    ("operator", "key"), [(Marked, "version"), (Release, "seconds")], ids=["no result", "a result without the key"]
)
def test_a_key_that_was_not_returned_fails_the_task_that_reads_it(
    run_dag: Callable[..., Any], operator: type[WasmBuildOperator], key: str
) -> None:
    assert read_key(run_dag, lambda: operator(task_id="build", project="p"), key) == []


@pytest.mark.parametrize(("key", "found"), [("replaced_by", ["newer"]), ("changed", [None]), ("digest", [])])
def test_a_key_that_some_results_have_is_none_without_it(
    run_dag: Callable[..., Any], key: str, found: list[Any]
) -> None:
    assert read_key(run_dag, lambda: Stream(task_id="s", job="j", storage="/s", transform="t"), key) == found


@pytest.mark.parametrize("operator", [Release, Earlier])
def test_the_key_of_each_task_of_a_mapped_group_is_read_inside_and_after_it(
    run_dag: Callable[..., Any], operator: type[WasmBuildOperator]
) -> None:
    inside, after = [], []
    with DAG("group", schedule=None) as dag:

        @task
        def read(value: Any) -> None:
            inside.append(value)

        @task
        def collect(values: Any) -> None:
            after.append(list(values))

        @task_group
        def build_each(project: str) -> Any:
            build = operator(task_id="build", project=project)
            read(build.output["digest"])
            collected.append(build)

        collected: list[WasmBuildOperator] = []
        build_each.expand(project=["a", "b"])
        collect(collected[0].output["digest"])
    assert run_dag(dag).state == "success"
    assert (inside, after) == (["sha256:1"] * 2, [["sha256:1"] * 2])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_keys_that_some_results_do_not_have_are_keys(operator: type[MultipleOutputsOperator]) -> None:
    assert set(operator.optional_keys) <= set(operator.output_keys)


def test_a_reference_to_a_key_is_serialized_as_airflow_s_own() -> None:
    publish = WasmPublishOperator(task_id="publish", project="p", registry="/r")
    key = publish.output["version"]
    assert serialize_xcom_arg(key) == serialize_xcom_arg(XComArg(publish, key="version"))
    with DAG("stored", schedule=None) as dag:
        made = WasmPublishOperator(task_id="publish", project="p", registry="/r")
        WasmDeployOperator(task_id="one", registry="/r", name="a", version=made.output["version"])
        WasmDeployOperator.partial(task_id="two", registry="r", version=made.output["version"]).expand(name=["a"])
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert all(read.get_task(each).upstream_task_ids == {"publish"} for each in ("one", "two"))


def test_a_key_is_an_argument_of_a_mapped_task() -> None:
    with DAG("mapped", schedule=None):
        publish = WasmPublishOperator(task_id="publish", project="p", registry="/r")
        deploy = WasmDeployOperator.partial(task_id="deploy", registry="r", version=publish.output["version"])
        assert deploy.expand(name=["a", "b"]).upstream_task_ids == {"publish"}

"""Results by key: ``task.output["version"]``."""

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, task

import wasmline_provider
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
PAGE = Path(wasmline_provider.__file__).parents[2].joinpath("docs", "operators.md").read_text()
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


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_the_page_of_operators_has_each_with_its_module_and_its_keys(operator: type[MultipleOutputsOperator]) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    (row,) = [row for row in rows if f"`{operator.__name__}`" in row.split("|")[1]]
    assert f"`{operator.__module__}`" in row
    same = re.search(r"those of `(\w+)`", row)
    keys = next(each for each in rows if same and each.startswith(f"| `{same[1]}` |")) if same else row
    assert not [key for key in operator.output_keys if f"`{key}`" not in keys]


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
    publish = WasmPublishOperator(task_id="publish", project="p", registry="r")
    with pytest.raises(ValueError, match="publish has no key 'verison': WasmPublishOperator returns name, version, "):
        publish.output["verison"]


def test_pushing_each_key_can_be_turned_off_for_a_task_and_for_a_dag() -> None:
    assert WasmBuildOperator(task_id="one", project="p").multiple_outputs
    assert not WasmBuildOperator(task_id="one", project="p", multiple_outputs=False).multiple_outputs
    with DAG("off", schedule=None, default_args={"multiple_outputs": False}):
        assert not WasmBuildOperator(task_id="one", project="p").multiple_outputs
        assert not SparkStreamOperator(task_id="two", job="j", storage="s", transform="t").multiple_outputs


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


def test_a_key_is_an_argument_of_a_mapped_task() -> None:
    with DAG("mapped", schedule=None):
        publish = WasmPublishOperator(task_id="publish", project="p", registry="r")
        deploy = WasmDeployOperator.partial(task_id="deploy", registry="r", version=publish.output["version"])
        assert deploy.expand(name=["a", "b"]).upstream_task_ids == {"publish"}

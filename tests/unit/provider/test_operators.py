"""What every operator owes Airflow: templates of its own arguments, taken as they are."""

import inspect
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from wasmline.registry import ArtifactMetadata, Version
from wasmline.wasm import Schema
from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.model import PromoteModelOperator, TrainModelOperator
from wasmline_provider.operators.stream import SparkStreamOperator

JOB: dict[str, Any] = {"job": "{{ job }}", "storage": "{{ storage }}"}
OPERATORS: dict[type[BaseOperator], dict[str, Any]] = {
    WasmBuildOperator: {"project": "{{ project }}"},
    WasmTestOperator: {"project": "{{ project }}"},
    WasmPublishOperator: {"project": "{{ project }}", "registry": "{{ registry }}"},
    WasmDeployOperator: {"name": "{{ name }}", "registry": "{{ registry }}"},
    SparkStreamOperator: {**JOB, "transform": "{{ transform }}"},
    TrainModelOperator: {**JOB, "train": {"model": "{{ model }}"}},
    PromoteModelOperator: {"trained": {"model": "{{ model }}"}, "models": "{{ models }}"},
}


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_templated_fields_are_arguments_taken_unchanged(operator: type[BaseOperator]) -> None:
    arguments = OPERATORS[operator]
    made = operator(task_id="one", **arguments)
    known = {
        name for base in operator.__mro__ if base is not BaseOperator for name in inspect.signature(base).parameters
    }
    assert set(made.template_fields) <= known
    for name, value in arguments.items():
        assert getattr(made, name) is value
        assert name in made.template_fields


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_each_operator_shows_an_example_and_explains_its_arguments(operator: type[BaseOperator]) -> None:
    text = inspect.getdoc(operator) or ""
    assert "Example::" in text
    for name in OPERATORS[operator]:
        assert f":param {name}:" in text or f":param {name}:" in (inspect.getdoc(operator.__mro__[1]) or "")


def test_a_deployment_has_the_schemas_and_the_clock_that_the_operator_was_given() -> None:
    declared = {"input-topic": "in", "output-topics": ["out"]}
    metadata = ArtifactMetadata(transform=declared)
    version = Version(name="t", version="1.0.0", digest=f"sha256:{'a' * 64}", size_bytes=1, metadata=metadata)
    orders = {"id": 7, "definition": "{}", "format": "avro", "subject": "orders-value"}
    made = WasmDeployOperator(task_id="one", name="t", registry="r", schemas=[orders], clock="redpanda")
    spec = made._spec(version)
    assert spec.schemas == (Schema(id=7, definition="{}", format="avro", subject="orders-value"),)
    assert spec.clock == "redpanda"


def test_a_stream_for_ever_may_be_stopped_and_one_until_caught_up_may_not() -> None:
    until_caught_up = SparkStreamOperator(task_id="one", transform="t", **JOB)
    for_ever = SparkStreamOperator(task_id="two", transform="t", trigger_interval="1 second", **JOB)
    assert not until_caught_up.may_be_stopped
    assert for_ever.may_be_stopped


def test_a_training_may_have_its_numbers_as_text_as_templates_give_them() -> None:
    train = {
        "model": "m",
        "topic": "t",
        "models": "folder",
        "fields": {"x": "double", "y": "double", "id": "string"},
        "features": ["x"],
        "target": "y",
        "identity": "id",
        "since_ms": "1700000000000",
        "margin": "0.05",
    }
    spec = TrainModelOperator(task_id="one", train=train, **{**JOB, "job": "one"}).spec({}).train
    assert spec is not None
    assert (spec.since_ms, spec.margin, spec.features) == (1_700_000_000_000, 0.05, ("x",))

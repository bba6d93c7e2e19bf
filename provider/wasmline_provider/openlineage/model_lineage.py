"""Lineage of the tasks that train, promote, compile and roll back models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.openlineage.extractors import OperatorLineage

from wasmline_provider.argument_checks import given
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.openlineage import datasets
from wasmline_provider.openlineage.job_facets import job_run_facets, training_facets
from wasmline_provider.openlineage.task_locations import location

if TYPE_CHECKING:
    from wasmline_provider.openlineage.module_lineage import Result
    from wasmline_provider.operators.model import (
        CompileModelOperator,
        PromoteModelOperator,
        RollbackModelOperator,
        TrainModelOperator,
    )


def train_lineage(task: TrainModelOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a training: the topic, with its exact offsets, is the input, the model the output."""
    servers = KafkaHook(task.kafka_conn_id).get_settings()["bootstrap.servers"]
    topic = datasets.topic(servers, task.topic, fields=task.fields, units=given(task.units))
    offsets, trained = None, datasets.model(location(task, "models"), task.model)
    if result is not None:
        offsets = result["dataset"]["offsets"]
        trained = datasets.model(
            location(task, "models"),
            task.model,
            version=result["version"],
            digest=result["digest"],
            datasetDigest=result["dataset_digest"],
            metrics=_numbers(result["metrics"]),
            decision=result["decision"]["decision"],
            reason=result["decision"]["reason"],
            champion=result["champion"],
        )
    return OperatorLineage(
        inputs=[topic.as_input(offsets=offsets)],
        outputs=datasets.outputs_of(trained),
        run_facets=job_run_facets(result),
        job_facets=training_facets(task),
    )


def promote_lineage(task: PromoteModelOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a decision: the trained version is the input, the model with its new champion the output.

    A champion that is kept is no output.
    """
    trained = task.trained
    version = datasets.model(
        location(task, "models"),
        trained["model"],
        version=trained["version"],
        digest=trained.get("digest"),
        datasetDigest=trained.get("dataset_digest"),
        metrics=_numbers(trained["metrics"]),
    )
    facts = {} if result is None else {name: result[name] for name in ("decision", "reason")}
    live = None if result is None else result["live"]
    promoted = datasets.model(location(task, "models"), trained["model"], version=live, champion=live, **facts)
    is_kept = result is not None and result["decision"] != "promote"
    return OperatorLineage(
        inputs=datasets.inputs_of(version), outputs=datasets.outputs_of(*[] if is_kept else [promoted])
    )


def compile_lineage(task: CompileModelOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a compilation: the model's version is the input, the module in the registry the output."""
    transform = task.transform or task.model
    if result is None:
        source = datasets.model(location(task, "models"), task.model, version=task.version or None)
        compiled = datasets.module(location(task, "registry"), transform)
    else:
        model = result["model"]
        facts = {"version": model["version"], "digest": model["digest"], "datasetDigest": model["dataset"]}
        source = datasets.model(location(task, "models"), task.model, **facts)
        facts = {"version": result["version"], "digest": result["digest"], "sizeBytes": result["size_bytes"]}
        compiled = datasets.module(location(task, "registry"), transform, **facts)
    return OperatorLineage(inputs=datasets.inputs_of(source), outputs=datasets.outputs_of(compiled))


def model_rollback_lineage(task: RollbackModelOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a rollback: the model is the input, and it and the deployments that moved are outputs."""
    version = task.version or None if result is None else result["version"]
    model = datasets.model(location(task, "models"), task.model, version=version)
    outputs = [model]
    if result is not None:
        servers = KafkaHook(task.kafka_conn_id).get_settings()["bootstrap.servers"]
        restored = {"version": version, "champion": version, "reason": result["reason"]}
        outputs = [datasets.model(location(task, "models"), task.model, **restored)]
        for moved in result["deployments"]:
            outputs.append(datasets.deployment(servers, moved["name"], generation=moved["generation"]))
    return OperatorLineage(inputs=datasets.inputs_of(model), outputs=datasets.outputs_of(*outputs))


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if isinstance(value, int | float)}

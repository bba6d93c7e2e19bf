"""Lineage of the tasks that build, publish and deploy modules, and redrive dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.openlineage.extractors import OperatorLineage

from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.openlineage import datasets
from wasmline_provider.openlineage.task_locations import location

if TYPE_CHECKING:
    from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator
    from wasmline_provider.operators.deploy import WasmDeployOperator, WasmRollbackOperator
    from wasmline_provider.operators.redrive import RedriveDeadLettersOperator

Result = Mapping[str, Any] | None
"""The result of a task, None before it has one."""


def build_lineage(task: WasmBuildOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a build: the project's folder is the input, the built file on the worker the output."""
    built = [] if result is None else [datasets.module_file(result["path"], **_built_facts(result))]
    return OperatorLineage(
        inputs=datasets.inputs_of(datasets.project(task.project)), outputs=datasets.outputs_of(*built)
    )


def sample_lineage(task: WasmTestOperator) -> OperatorLineage[Any, Any]:
    """Return the lineage of a test: the project's folder is the input."""
    return OperatorLineage(inputs=datasets.inputs_of(datasets.project(task.project)))


def publish_lineage(task: WasmPublishOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a publication: the module in the registry is the output, once its name is known."""
    published = []
    if result is not None:
        facts = {"version": result["version"], "digest": result["digest"], "sizeBytes": result["size_bytes"]}
        published = [datasets.module(location(task, "registry"), result["name"], **facts)]
    return OperatorLineage(
        inputs=datasets.inputs_of(datasets.project(task.project)), outputs=datasets.outputs_of(*published)
    )


def deploy_lineage(task: WasmDeployOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a deployment: the module in the registry is the input, the deployment the output."""
    facts = {} if result is None else {"digest": result["digest"]}
    version = task.version or None if result is None else result["version"]
    module = datasets.module(location(task, "registry"), task.name, version=version, **facts)
    return OperatorLineage(inputs=datasets.inputs_of(module), outputs=datasets.outputs_of(_deployment(task, result)))


def rollback_lineage(task: WasmRollbackOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a rollback: the deployment is the output. Its module comes from the cluster."""
    return OperatorLineage(outputs=datasets.outputs_of(_deployment(task, result)))


def redrive_lineage(task: RedriveDeadLettersOperator, result: Result) -> OperatorLineage[Any, Any]:
    """Return the lineage of a redrive: the dead letters are the input, the topic that is written, if named, the output.

    Of a redrive through a transform, its deployment is an input, too.
    """
    servers = KafkaHook(task.kafka_conn_id).get_settings()["bootstrap.servers"]
    rows = None if result is None else result["dead_letters"]
    inputs = [datasets.topic(servers, task.topic).as_input(rows=rows)]
    if task.through:
        inputs.append(datasets.deployment(servers, task.through).as_input())
        return OperatorLineage(inputs=inputs)
    written = datasets.topics(servers, [task.to_topic or task.source_topic])
    return OperatorLineage(inputs=inputs, outputs=[each.as_output(rows=rows) for each in written])


def _deployment(task: WasmDeployOperator | WasmRollbackOperator, result: Result) -> datasets.LineageDataset:
    servers = KafkaHook(task.kafka_conn_id).get_settings()["bootstrap.servers"]
    names = ("version", "digest", "generation", "state")
    return datasets.deployment(servers, task.name, **{} if result is None else {name: result[name] for name in names})


def _built_facts(report: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "name": "name",
        "version": "version",
        "digest": "digest",
        "sizeBytes": "size_bytes",
        "abi": "abi",
        "language": "language",
        "toolchain": "toolchain",
        "sourceDigest": "source_digest",
        "sourceRevision": "source_revision",
    }
    return {fact: report[key] for fact, key in names.items()}

"""Lineage of streams: the topics that a transform's deployment, or a function, reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.openlineage.extractors import OperatorLineage

from wasmline.offset_ranges import OffsetRanges, union_of
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.openlineage import datasets
from wasmline_provider.openlineage.job_facets import job_run_facets, stream_facets

if TYPE_CHECKING:
    from wasmline.control import Deployment
    from wasmline.job_specs import FunctionSpec, JobSpec
    from wasmline_provider.openlineage.module_lineage import Result


def transform_lineage(
    kafka_conn_id: str, spec: JobSpec, transform: str, deployment: Deployment | None, result: Result
) -> OperatorLineage[Any, Any]:
    """Return the lineage of a stream of a transform: its deployment, None if unknown, names the topics.

    The deployment is an input, too: it joins the stream to the module in the registry.
    """
    servers = KafkaHook(kafka_conn_id).get_settings()["bootstrap.servers"]
    if deployment is None:
        return _lineage(spec, [datasets.deployment(servers, transform).as_input()], [], result)
    deployed, found = deployment.spec, result or {}
    facts: dict[str, Any] = {
        "version": deployed.version,
        "digest": deployed.digest,
        "generation": deployment.generation,
    }
    if deployed.model is not None:
        facts |= {"model": str(deployed.model), "modelDigest": deployed.model.digest}
    topic = datasets.topic(servers, deployed.input_topic)
    inputs = [
        topic.as_input(rows=found.get("records_in"), offsets=processed_offsets(found)),
        datasets.deployment(servers, transform, **facts).as_input(),
    ]
    _, *written = deployed.topics
    outputs_only = [each for each in written if each != deployed.dead_letter_topic]
    rows = dict.fromkeys(outputs_only, found.get("records_out")) if len(outputs_only) == 1 else {}
    if deployed.dead_letter_topic:
        rows[deployed.dead_letter_topic] = _total(found.get("dead_letters"))
    outputs = [datasets.topic(servers, each).as_output(rows=rows.get(each)) for each in written]
    return _lineage(spec, inputs, outputs, result)


def function_lineage(
    kafka_conn_id: str, spec: JobSpec, function: FunctionSpec, result: Result
) -> OperatorLineage[Any, Any]:
    """Return the lineage of a stream of a function: its topics as far as the task names them.

    A function chooses the topic of each output itself.
    """
    servers, found = KafkaHook(kafka_conn_id).get_settings()["bootstrap.servers"], result or {}
    topic = datasets.topic(servers, function.topic)
    inputs = [topic.as_input(rows=found.get("records_in"), offsets=processed_offsets(found))]
    dead_letters = datasets.topics(servers, [function.dead_letter_topic])
    outputs = [each.as_output(rows=_total(found.get("dead_letters"))) for each in dead_letters]
    return _lineage(spec, inputs, outputs, result)


def processed_offsets(totals: Mapping[str, Any]) -> OffsetRanges | None:
    """Return the offsets that a run has read, None if its report, which may have the last batches only, lacks some."""
    batches: Sequence[Mapping[str, Any]] = totals.get("batches", ())
    if not batches or sum(each["records_in"] for each in batches) != totals["records_in"]:
        return None
    return union_of({part: tuple(ends) for part, ends in each["offsets"].items()} for each in batches)


def _lineage(spec: JobSpec, inputs: list[Any], outputs: list[Any], result: Result) -> OperatorLineage[Any, Any]:
    return OperatorLineage(
        inputs=inputs, outputs=outputs, run_facets=job_run_facets(result), job_facets=stream_facets(spec)
    )


def _total(dead_letters: Mapping[str, int] | None) -> int | None:
    return None if dead_letters is None else sum(dead_letters.values())

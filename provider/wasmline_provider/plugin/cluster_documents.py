"""The documents of the page about transforms and jobs, as JSON-able values, from the state of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from wasmline.control import (
    ClusterState,
    DriverClaim,
    GenerationHistory,
    GenerationOffsets,
    JobView,
    LineSample,
    PartitionTotals,
    Redrive,
)
from wasmline.documents import plain
from wasmline.job_specs import JobReport
from wasmline.partition_status import PartitionStatus
from wasmline_provider.registry_places import url_without_login

PARTITION_FIELDS = (
    *("partition", "topic", "job", "state", "generation", "digest", "offset", "lag", "rate", "since_offset"),
    *("updated_ms", "records_in", "records_out", "dead_letters", "in_flight", "retries", "stuck_keys", "hangs"),
    *("lost_offsets", "host", "lease"),
)

STREAM_FIELDS = (
    *("ordering", "max_concurrency", "tasks", "trigger_interval", "starting_offsets", "lease_seconds"),
    *("max_offsets_per_trigger", "shards"),
)

SPEC_FIELDS = (
    *("input_topic", "output_topics", "dead_letter_topic", "memory_bytes", "cpu_ms_per_record"),
    *("max_failure_share", "compression", "provenance", "clock"),
)


def transform_row(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the row of a deployed transform."""
    deployment = state.deployments[name]
    spec, job = deployment.spec, state.job_of(name)
    partitions = job.partitions if job is not None else ()
    totals = PartitionTotals.of(partitions)
    return {
        "name": name,
        "version": spec.version,
        "digest": spec.digest,
        "generation": deployment.generation,
        "state": deployment.state,
        "reason": deployment.reason,
        "changed_ms": deployment.updated_ms,
        "model": None if spec.model is None else str(spec.model),
        "input_topic": spec.input_topic,
        "output_topics": list(spec.output_topics),
        "dead_letter_topic": spec.dead_letter_topic,
        "job": None if job is None else job.order.spec.job,
        "condition": None if job is None else job.condition,
        "running": _running(partitions),
        "partitions": state.partition_count(spec.input_topic) or len(partitions),
        "lag": totals.lag,
        "rate": LineSample.of(partitions).rate,
        "dead_letters": sum(each.generation_dead_letters for each in partitions),
        "stuck_keys": totals.stuck_keys,
        "lost_offsets": totals.lost_offsets,
    }


def transform_details(state: ClusterState, name: str, now_ms: int) -> dict[str, Any]:
    """Return the page of a deployed transform."""
    deployment = state.deployments[name]
    spec, partitions = deployment.spec, state.partitions_of(name)
    samples = state.line(name, now_ms)
    return {
        "row": transform_row(state, name),
        "spec": {**{field: getattr(spec, field) for field in SPEC_FIELDS}, "env": sorted(spec.env)},
        "generations": [_generation(each, each.state(deployment)) for each in reversed(state.generations(name))],
        "partitions": _partitions(partitions),
        "dead_letters": PartitionTotals.of(partitions).dead_letters,
        "redrives": redrive_documents(state.redrives(spec.dead_letter_topic) if spec.dead_letter_topic else ()),
        "lines": line_document(samples),
    }


def line_document(samples: Iterable[LineSample | None]) -> dict[str, list[float | None]]:
    """Return the samples of a transform, one list for each figure."""
    known = list(samples)
    return {
        name: [None if each is None else getattr(each, name) for each in known]
        for name in ("rate", "lag", "dead_letters")
    }


def job_row(view: JobView) -> dict[str, Any]:
    """Return the row of a job."""
    overview, totals = view.overview, PartitionTotals.of(view.partitions)
    report, is_stream = overview.report, view.order.spec.stream is not None
    return {
        "job": view.order.spec.job,
        "run": view.order.spec.run,
        "condition": view.condition,
        "wanted": overview.wanted,
        "mode": overview.mode,
        "delivery": overview.delivery,
        "work": overview.work,
        "transform": view.transform,
        "message": overview.message,
        "problem": overview.problem,
        "reported_ms": None if report is None else report.updated_ms,
        "started_by": started_by(view),
        "by": view.order.cause.by,
        "spark_ui": "" if report is None else report.spark_ui,
        "hosts": sorted({each.host for each in view.partitions if each.host}),
        "running": _running(view.partitions) if is_stream else None,
        "partitions": len(view.partitions) if is_stream else None,
        "lag": totals.lag,
        "rate": LineSample.of(view.partitions).rate,
        "in_flight": totals.in_flight,
        "retries": totals.retries,
        "stuck_keys": totals.stuck_keys,
    }


def started_by(view: JobView) -> dict[str, str] | None:
    """Return the task that ordered the run of a job: its DAG, run and task; None if a task did not."""
    parts = view.order.cause.run.split("/")
    if len(parts) < 3 or not all(parts[:3]):
        return None
    return {"dag_id": parts[0], "run_id": parts[1], "task_id": parts[2]}


def job_details(state: ClusterState, view: JobView) -> dict[str, Any]:
    """Return the page of a job."""
    spec = view.order.spec
    stream = plain(spec.stream) if spec.stream is not None else {}
    events = reversed(state.job_events(spec.job))
    return {
        "row": job_row(view),
        "storage": url_without_login(spec.storage),
        **{field: stream.get(field) for field in STREAM_FIELDS},
        "events": [
            {"action": each.action, "time_ms": each.changed_ms, "job_run": each.run, **plain(each.cause)}
            for each in events
        ],
        "claim": _claim(state.claim(spec.job)),
        "launcher": None if view.order.launch is None else view.order.launch.launcher,
        "partitions": _partitions(view.partitions),
        "report": None if view.overview.report is None else report_document(view.overview.report),
    }


def report_document(report: JobReport) -> dict[str, Any]:
    """Return the report of a run."""
    result = report.result
    return {
        "job": report.job,
        "run": report.run,
        "state": report.state,
        "message": report.message,
        "error": report.error,
        "updated_ms": report.updated_ms,
        **{name: result.get(name) for name in ("records_in", "records_out", "dead_letters", "lost_offsets")},
        "batches": [_batch(each) for each in _list(result.get("batches")) if isinstance(each, Mapping)],
    }


def redrive_documents(redrives: Iterable[Redrive]) -> list[dict[str, Any]]:
    """Return redrives, the newest first."""
    found = sorted(redrives, key=lambda each: each.started_ms, reverse=True)
    names = ("id", "topic", "state", "dead_letters", "outputs", "failed_again", "to_topic", "through")
    return [
        {
            **{name: getattr(each, name) for name in names},
            "skipped": dict(each.skipped),
            **plain(each.cause),
            "started_ms": each.started_ms,
            "updated_ms": each.updated_ms,
        }
        for each in found
    ]


def run_document(
    state: ClusterState,
    dag_id: str,
    run_id: str,
    *,
    task_id: str | None,
    map_index: int | None,
    jobs: Collection[str],
    transforms: Collection[str],
) -> dict[str, Any]:
    """Return what a run of a DAG, one of its tasks, or one of its mapped tasks has ordered and changed on the cluster.

    jobs, transforms: those that its tasks name: a task may have adopted the job of another run. With a task, only its
    own jobs count, and the changes of the transforms that it names.
    """
    name = f"{dag_id}/{run_id}"
    task = [] if task_id is None else [task_id] if map_index is None else [task_id, str(map_index)]
    ordered_by = "/".join([name, *task])
    orders = [each for each in state.orders() if each.spec.job in jobs or _is_of(each.cause.run, ordered_by)]
    views = [state.require_job(job) for job in sorted(each.spec.job for each in orders)]
    reports = [view.overview.report for view in views if view.overview.report is not None]
    changes = [
        {
            "transform": transform,
            "generation": each.deployment.generation,
            "version": each.deployment.spec.version,
            "action": each.action,
            "time_ms": each.deployment.updated_ms,
            "reason": each.cause.reason,
        }
        for transform, each in state.events_of_run(name)
        if task_id is None or transform in transforms
    ]
    named = {view.transform or "" for view in views} | {str(each["transform"]) for each in changes} | set(transforms)
    return {
        "jobs": [job_row(view) for view in views],
        "reports": [report_document(each) for each in reports],
        "changes": changes,
        "transforms": [transform_row(state, each) for each in sorted(named & state.deployments.keys())],
        "redrives": redrive_documents(each for each in state.redrives(None) if _is_of(each.id, ordered_by)),
    }


def _is_of(cause_run: str, run: str) -> bool:
    return cause_run == run or cause_run.startswith(f"{run}/")


def _running(partitions: Iterable[PartitionStatus]) -> int:
    return sum(each.state == "running" for each in partitions)


def _partitions(partitions: Iterable[PartitionStatus]) -> list[dict[str, Any]]:
    return [{field: getattr(each, field) for field in PARTITION_FIELDS} for each in partitions]


def _generation(generation: GenerationHistory, state: str) -> dict[str, Any]:
    spec = generation.deployment.spec
    return {
        "number": generation.number,
        "state": state,
        "version": spec.version,
        "digest": spec.digest,
        "model": None if spec.model is None else str(spec.model),
        "changes": [
            {
                "action": each.action,
                "time_ms": each.deployment.updated_ms,
                "restored_generation": each.restored_generation,
                **plain(each.cause),
            }
            for each in generation.events
        ],
        "offsets": [_offsets(each) for each in generation.offsets],
    }


def _offsets(offsets: GenerationOffsets) -> dict[str, Any]:
    start, end = offsets.start, offsets.end or {}
    return {
        "job": start.job,
        "topic": start.topic,
        "started_ms": start.started_ms,
        "partitions": [[each, start.offsets.get(each), end.get(each)] for each in offsets.partitions],
    }


def _claim(claim: DriverClaim | None) -> dict[str, Any] | None:
    if claim is None:
        return None
    return {"driver": claim.driver, "run": claim.run, "epoch": claim.batch_id, "topic": claim.topic}


def _batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    durations = batch.get("duration_ms")
    duration_ms = durations.get("triggerExecution") if isinstance(durations, Mapping) else None
    return {**{name: batch.get(name) for name in ("batch_id", "records_in", "records_out")}, "duration_ms": duration_ms}


def _list(value: object) -> list[Any]:
    """Return a value of a result, which another release may have made something else."""
    return value if isinstance(value, list) else []

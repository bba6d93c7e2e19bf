"""Makes the facets of jobs on Spark and of their runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openlineage.client.facet_v2 import JobFacet, RunFacet

from wasmline_provider.openlineage.facets import KEYS, WasmlineJobJobFacet, WasmlineJobRunFacet

if TYPE_CHECKING:
    from wasmline.job_specs import JobSpec
    from wasmline_provider.operators.model import TrainModelOperator


def job_run_facets(result: Mapping[str, Any] | None) -> dict[str, RunFacet]:
    """Return the facets of a job's run by the result of its task, none before it has one."""
    if result is None:
        return {}
    facet = WasmlineJobRunFacet(
        job=result["job"],
        run=result["run"],
        state=result.get("state"),
        action=result.get("action"),
        digest=result.get("digest") if "generation" in result else None,
        generation=result.get("generation"),
        recordsIn=result.get("records_in"),
        recordsOut=result.get("records_out"),
        deadLetters=result.get("dead_letters"),
    )
    return {KEYS[WasmlineJobRunFacet]: facet}


def stream_facets(spec: JobSpec) -> dict[str, JobFacet]:
    """Return the facets of a stream. Airflow's own facet ``jobType`` calls each task a batch."""
    stream = spec.stream
    if stream is None:
        return {}
    facet = WasmlineJobJobFacet(
        job=spec.job,
        processingType="STREAMING" if spec.is_continuous else "BATCH",
        consumerGroup=spec.group,
        transform=stream.transform or None,
        function=stream.function.function if stream.function else None,
        mode=stream.mode,
        delivery=stream.delivery,
    )
    return {KEYS[WasmlineJobJobFacet]: facet}


def training_facets(task: TrainModelOperator) -> dict[str, JobFacet]:
    """Return the facets of a training."""
    return {KEYS[WasmlineJobJobFacet]: WasmlineJobJobFacet(job=task.job, processingType="BATCH")}

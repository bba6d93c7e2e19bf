"""Facets of Wasmline's own, beside the standard ones of OpenLineage.

Their schemas are in ``facets.schema.json``, beside this module: a field is never removed or given another type under
one number of SCHEMA. A facet's key in an event is that of KEYS.
"""
# ruff: noqa: N815 -- names of fields in OpenLineage's JSON

from __future__ import annotations

from attr import define, field
from openlineage.client.facet_v2 import BaseFacet, DatasetFacet, InputDatasetFacet, JobFacet, RunFacet

from wasmline import __version__

PRODUCER = f"urn:wasmline:airflow-provider:{__version__}"

SCHEMA = "urn:wasmline:openlineage-facets:1"


def _schema(facet: str) -> str:
    return f"{SCHEMA}#/$defs/{facet}"


@define(kw_only=True)
class WasmlineModuleDatasetFacet(DatasetFacet):
    """A module of a transform: its bytes by their digest, its version, and how it was built."""

    name: str
    version: str | None = None
    digest: str | None = None
    sizeBytes: int | None = None
    abi: int | None = None
    language: str | None = None
    toolchain: str | None = None
    sourceDigest: str | None = None
    sourceRevision: str | None = None
    _producer: str = field(default=PRODUCER)

    @staticmethod
    def _get_schema() -> str:
        return _schema("WasmlineModuleDatasetFacet")


@define(kw_only=True)
class WasmlineDeploymentDatasetFacet(DatasetFacet):
    """A generation of a deployment: the version that it runs, the module's digest, the model that the module has."""

    name: str
    version: str | None = None
    digest: str | None = None
    generation: int | None = None
    state: str | None = None
    model: str | None = None
    modelDigest: str | None = None
    _producer: str = field(default=PRODUCER)

    @staticmethod
    def _get_schema() -> str:
        return _schema("WasmlineDeploymentDatasetFacet")


@define(kw_only=True)
class WasmlineModelDatasetFacet(DatasetFacet):
    """A version of a model: its bytes and its dataset by their digests, its metrics, and the decision about it."""

    name: str
    version: str | None = None
    digest: str | None = None
    datasetDigest: str | None = None
    metrics: dict[str, float] | None = None
    decision: str | None = None
    reason: str | None = None
    champion: str | None = None
    _producer: str = field(default=PRODUCER)

    @staticmethod
    def _get_schema() -> str:
        return _schema("WasmlineModelDatasetFacet")


@define(kw_only=True)
class WasmlineOffsetsInputDatasetFacet(InputDatasetFacet):
    """The offsets of a topic that a run has read: half-open ranges, each with ``partition``, ``start`` and ``end``."""

    ranges: list[dict[str, int]]
    _producer: str = field(default=PRODUCER)

    @staticmethod
    def _get_schema() -> str:
        return _schema("WasmlineOffsetsInputDatasetFacet")


@define(kw_only=True)
class WasmlineJobRunFacet(RunFacet):
    """The run of a job that a task has started or found, and its counts."""

    job: str
    run: str
    state: str | None = None
    action: str | None = None
    digest: str | None = None
    generation: int | None = None
    recordsIn: int | None = None
    recordsOut: int | None = None
    deadLetters: dict[str, int] | None = None
    _producer: str = field(default=PRODUCER)

    @staticmethod
    def _get_schema() -> str:
        return _schema("WasmlineJobRunFacet")


@define(kw_only=True)
class WasmlineJobJobFacet(JobFacet):
    """A job on Spark. ``processingType``: ``STREAMING`` until it is stopped, or ``BATCH``."""

    job: str
    processingType: str
    consumerGroup: str | None = None
    transform: str | None = None
    function: str | None = None
    mode: str | None = None
    delivery: str | None = None
    _producer: str = field(default=PRODUCER)

    @staticmethod
    def _get_schema() -> str:
        return _schema("WasmlineJobJobFacet")


KEYS: dict[type[BaseFacet], str] = {
    WasmlineModuleDatasetFacet: "wasmline_module",
    WasmlineDeploymentDatasetFacet: "wasmline_deployment",
    WasmlineModelDatasetFacet: "wasmline_model",
    WasmlineOffsetsInputDatasetFacet: "wasmline_offsets",
    WasmlineJobRunFacet: "wasmline_job",
    WasmlineJobJobFacet: "wasmline_job",
}

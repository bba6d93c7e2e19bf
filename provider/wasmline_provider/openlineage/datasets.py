"""Makes OpenLineage datasets of topics, modules, models and deployments, with their facets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    dataset_type_dataset,
    dataset_version_dataset,
    datasource_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from wasmline.offset_ranges import OffsetRanges, ranges_of
from wasmline_provider.openlineage.dataset_names import (
    DatasetName,
    deployment_name,
    model_name,
    module_name,
    path_name,
    topic_name,
)
from wasmline_provider.openlineage.facets import (
    KEYS,
    WasmlineDeploymentDatasetFacet,
    WasmlineModelDatasetFacet,
    WasmlineModuleDatasetFacet,
    WasmlineOffsetsInputDatasetFacet,
)


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """What a task reads or writes, with the facets that it has in either case."""

    identity: DatasetName
    facets: dict[str, DatasetFacet] = field(default_factory=dict)

    def as_input(self, *, rows: int | None = None, offsets: OffsetRanges | None = None) -> InputDataset:
        """Return it as an input, of which a run has read ``rows`` records, or ``offsets``; None if unknown."""
        facets: dict[str, InputDatasetFacet] = {}
        if rows is not None:
            facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=rows)
        if offsets is not None:
            ranges = [{"partition": part, "start": start, "end": end} for part, start, end in ranges_of(offsets)]
            facets[KEYS[WasmlineOffsetsInputDatasetFacet]] = WasmlineOffsetsInputDatasetFacet(ranges=ranges)
        return InputDataset(*self.identity, facets=dict(self.facets), inputFacets=facets)

    def as_output(self, *, rows: int | None = None) -> OutputDataset:
        """Return it as an output, to which a run has written ``rows`` records; None if unknown."""
        facets: dict[str, OutputDatasetFacet] = {}
        if rows is not None:
            statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
            facets["outputStatistics"] = statistics
        return OutputDataset(*self.identity, facets=dict(self.facets), outputFacets=facets)


def topic(
    bootstrap_servers: str,
    name: str,
    *,
    fields: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
) -> LineageDataset:
    """Return a topic.

    fields: the members of its JSON records that are known, with their types. units: of fields, such as ``km``.
    """
    found = _described(topic_name(bootstrap_servers, name), kind="TOPIC")
    if fields:
        found.facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=each, type=kind, description=(units or {}).get(each))
                for each, kind in fields.items()
            ]
        )
    return found


def project(folder: str) -> LineageDataset:
    """Return the folder of a transform's sources."""
    return _described(path_name(folder), kind="FILE")


def module_file(path: str, **facts: Any) -> LineageDataset:
    """Return a built module on the worker. For ``facts`` see WasmlineModuleDatasetFacet."""
    return _module(path_name(path), facts)


def module(registry: str, transform: str, **facts: Any) -> LineageDataset:
    """Return the published modules of a transform. For ``facts`` see WasmlineModuleDatasetFacet."""
    return _module(module_name(registry, transform), {"name": transform, **facts})


def model(models: str, name: str, **facts: Any) -> LineageDataset:
    """Return a model. For ``facts`` see WasmlineModelDatasetFacet."""
    facet = WasmlineModelDatasetFacet(name=name, **facts)
    return _described(model_name(models, name), kind="MODEL", version=facet.version, own=facet)


def deployment(bootstrap_servers: str, transform: str, **facts: Any) -> LineageDataset:
    """Return the deployment of a transform. For ``facts`` see WasmlineDeploymentDatasetFacet."""
    facet = WasmlineDeploymentDatasetFacet(name=transform, **facts)
    version = None if facet.generation is None else str(facet.generation)
    return _described(deployment_name(bootstrap_servers, transform), version=version, own=facet)


def inputs_of(*datasets: LineageDataset) -> list[InputDataset]:
    """Return datasets as inputs, of which no more is known."""
    return [each.as_input() for each in datasets]


def outputs_of(*datasets: LineageDataset) -> list[OutputDataset]:
    """Return datasets as outputs, of which no more is known."""
    return [each.as_output() for each in datasets]


def topics(bootstrap_servers: str, names: Iterable[str | None]) -> list[LineageDataset]:
    """Return topics, each once; None is none."""
    return [topic(bootstrap_servers, name) for name in dict.fromkeys(names) if name]


def _module(identity: DatasetName, facts: Mapping[str, Any]) -> LineageDataset:
    facet = WasmlineModuleDatasetFacet(**facts)
    return _described(identity, kind="FILE", version=facet.version, own=facet)


def _described(
    identity: DatasetName, *, kind: str | None = None, version: str | None = None, own: DatasetFacet | None = None
) -> LineageDataset:
    """Return a dataset with its data source and, as far as they are known, its type, version and own facet."""
    namespace = identity.namespace
    uri = namespace if "://" in namespace else f"{namespace}://"
    facets: dict[str, DatasetFacet] = {"dataSource": datasource_dataset.DatasourceDatasetFacet(name=namespace, uri=uri)}
    if kind is not None:
        facets["datasetType"] = dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=kind)
    if version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version)
    if own is not None:
        facets[KEYS[type(own)]] = own
    return LineageDataset(identity, facets)

"""Events of OpenLineage, as a transport sends them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from jsonschema import Draft202012Validator
from openlineage.client.event_v2 import Job, Run, RunEvent
from openlineage.client.serde import Serde

Json = dict[str, Any]


def sent(lineage: OperatorLineage[Any, Any]) -> Json:
    """Return the event of a task with this lineage, as JSON."""
    event = RunEvent(
        eventTime="2026-01-01T00:00:00Z",
        run=Run("0190b0e2-0000-7000-8000-000000000000", facets=lineage.run_facets),
        job=Job("tests", "dag.task", facets=lineage.job_facets),
        inputs=lineage.inputs,
        outputs=lineage.outputs,
    )
    plain: Json = json.loads(Serde.to_json(event))
    return plain


def names(datasets: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the identities of datasets."""
    return {(each["namespace"], each["name"]) for each in datasets}


def facets_of(event: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """Yield each facet of an event with its key."""
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for holder in holders:
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from (holder.get(kind) or {}).items()


def require_valid_facets(event: Mapping[str, Any]) -> list[str]:
    """Return the keys of Wasmline's facets in an event. Raises ValidationError unless each is of its schema."""
    schema = json.loads(resources.files("wasmline_provider.openlineage").joinpath("facets.schema.json").read_text())
    found = []
    for key, facet in facets_of(event):
        identity, _, place = facet["_schemaURL"].partition("#")
        if identity == schema["$id"]:
            Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#{place}"}).validate(facet)
            found.append(key)
        else:
            assert not key.startswith("wasmline_")
    return found

"""Looks a model up in the registry, with the offsets that it was trained on."""

from __future__ import annotations

from dataclasses import replace

from wasmline.errors import JobError, RegistryError
from wasmline.lineage.explanation import ModelOrigin
from wasmline.lineage.module_lookup import digest_problems
from wasmline.provenance import ShortModelReference
from wasmline.training import ModelRegistry


def model_origin(registry: ModelRegistry, named: ShortModelReference) -> ModelOrigin:
    """Return a model that a record names, as far as the registry knows it."""
    origin = ModelOrigin(
        name=named.name, version=named.version, recorded_digest=named.digest, recorded_dataset=named.dataset
    )
    try:
        found = registry.get(named.name, named.version)
    except (RegistryError, JobError) as error:
        return replace(origin, problems=(str(error),))
    record, place = found.record, f"{named} in {registry.url}"
    return replace(
        origin,
        digest=found.digest,
        dataset=record.dataset_digest,
        topic=record.dataset.topic,
        offsets=record.dataset.offsets,
        training_rows=record.training_rows,
        metrics=record.metrics,
        problems=(
            *digest_problems("model", named.digest, found.digest, place),
            *digest_problems("dataset", named.dataset, record.dataset_digest, f"that of {place}"),
        ),
    )

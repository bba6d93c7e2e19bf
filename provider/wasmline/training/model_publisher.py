"""Publishes a model version as a transform: compiled, proven, and described in its own bytes."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from wasmline.build import BuildReport
from wasmline.build.report import digested, provenance_statement
from wasmline.digests import digest_of
from wasmline.documents import plain
from wasmline.errors import InvalidModel, VersionExists, VersionNotFound
from wasmline.model_reference import ModelReference
from wasmline.printable import bounded_line
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, Version
from wasmline.training.model_compiler import add_model, build_scorer
from wasmline.training.model_proof import prove
from wasmline.training.model_registry import ModelRecord, ModelRegistry, ModelVersion
from wasmline.wasm.model_section import (
    HoldoutMetrics,
    ModelInput,
    ModelProof,
    ModelSection,
    model_of,
    with_model,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenModule:
    """A compiled model with its section, and how its scorer was built."""

    wasm: bytes
    section: ModelSection
    scorer: BuildReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model as a version of a transform. ``is_new``: the version was not published before."""

    name: str
    version: str
    digest: str
    size_bytes: int
    model: ModelReference
    proof: ModelProof
    seconds: float
    is_new: bool

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def publish_model(
    *,
    models: str,
    model: str,
    version: str,
    registry: str,
    input_topic: str,
    output_topic: str,
    dead_letter_topic: str,
    transform: str | None = None,
    cache_dir: Path | None = None,
) -> PublishedModel:
    """Compile a model version, prove it, and publish it as a transform.

    The transform has the version of the model, and its name unless ``transform`` is given. A version that is published
    already is proven again and returned, whichever scorer it was compiled with.

    Raises VersionNotFound, VersionExists for another transform of that name and version or other topics, InvalidModel,
    ModelProofFailed, and the errors of ``build_scorer`` and of both registries.
    """
    started = time.monotonic()
    modules = FilesystemRegistry(registry)
    source = _load(models, model, version)
    declaration: dict[str, Any] = {
        "input-topic": input_topic,
        "output-topics": [output_topic, dead_letter_topic],
        "dead-letter-topic": dead_letter_topic,
        "language": "cpp",
        "model": plain(source.reference),
    }
    try:
        stored, wasm = modules.load(transform or model, version)
        is_new, proof = False, _prove_stored(source, stored, wasm, declaration, modules.url)
    except VersionNotFound:
        proven = _compile(source, cache_dir)
        stored = _publish(modules, transform or model, declaration, proven)
        is_new, proof = True, proven.section.proof
    log.info("%s is %s: %s, proven on %s", stored, stored.digest, source.reference, proof)
    return PublishedModel(
        name=stored.name,
        version=stored.version,
        digest=stored.digest,
        size_bytes=stored.size_bytes,
        model=source.reference,
        proof=proof,
        seconds=round(time.monotonic() - started, 3),
        is_new=is_new,
    )


def compile_proven(*, models: str, model: str, version: str, cache_dir: Path | None = None) -> ProvenModule:
    """Compile a model version, prove it, and return it with its section. Raises the errors of ``publish_model``."""
    return _compile(_load(models, model, version), cache_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A model version with its held-out rows."""

    reference: ModelReference
    record: ModelRecord
    data: bytes
    held_out: pa.Table


def _load(models: str, model: str, version: str) -> _Source:
    registry = ModelRegistry(models)
    stored, data = registry.load(model, version)
    return _Source(
        reference=model_reference(stored),
        record=stored.record,
        data=data,
        held_out=registry.held_out(model, version),
    )


def model_reference(stored: ModelVersion) -> ModelReference:
    """Return the reference to a model version. Raises InvalidModel for digests that are none."""
    return reference_to(stored.name, stored.version, digest=stored.digest, dataset=stored.record.dataset_digest)


def reference_to(name: str, version: str, *, digest: str, dataset: str) -> ModelReference:
    """Return the reference to the model version of these digests. Raises InvalidModel if they are none."""
    try:
        return ModelReference(name=name, version=version, digest=digest, dataset=dataset)
    except ValueError as error:
        raise InvalidModel(f"{name}@{version}: {bounded_line(error)}; train it again") from error


def _compile(source: _Source, cache_dir: Path | None) -> ProvenModule:
    scorer, wasm = build_scorer(cache_dir)
    module = add_model(wasm, source.data, source.record)
    proof = prove(source.data, source.record, module, source.held_out)
    section = _section(source, proof, digest_of(module))
    return ProvenModule(wasm=with_model(module, section), section=section, scorer=scorer)


def _publish(modules: FilesystemRegistry, name: str, declaration: dict[str, Any], proven: ProvenModule) -> Version:
    section = proven.section
    metadata = ArtifactMetadata(
        description=f"Predicts {section.target}: the model {section.model}",
        revision=proven.scorer.source_revision,
        transform=declaration,
    )
    dependencies = [
        digested(f"model {section.model}", section.model.digest),
        digested("dataset", section.model.dataset),
        *proven.scorer.dependencies(),
    ]
    parameters = {**proven.scorer.parameters(), "declaration": declaration}
    provenance = provenance_statement(name, digest_of(proven.wasm), "urn:wasmline:model:1", parameters, dependencies)
    return modules.publish(name, section.model.version, proven.wasm, metadata=metadata, provenance=provenance)


def _prove_stored(source: _Source, stored: Version, wasm: bytes, declaration: dict[str, Any], url: str) -> ModelProof:
    """Return the proof of a version that is there already."""
    found = model_of(wasm)
    if found is None or found.section.model != source.reference:
        raise _exists(
            stored, url, f"is another model, {found.section.model}" if found else "is no compiled model", source
        )
    declared = stored.metadata.transform
    if differing := sorted(key for key, value in declaration.items() if declared.get(key) != value):
        raise _exists(stored, url, f"declares another {', '.join(differing)}", source)
    if not found.proven:
        raise InvalidModel(f"{stored} in {url} was changed after its proof: remove the version, and publish it again")
    return prove(source.data, source.record, wasm, source.held_out)


def _exists(stored: Version, url: str, what: str, source: _Source) -> VersionExists:
    return VersionExists(
        f"{stored} exists in {url} and {what}; versions are immutable: publish {source.reference} as another transform",
        name=stored.name,
        version=stored.version,
    )


def _section(source: _Source, proof: ModelProof, module: str) -> ModelSection:
    record = source.record
    metrics = {each.name: getattr(record.metrics, each.name) for each in fields(HoldoutMetrics)}
    return ModelSection(
        model=source.reference,
        target=record.target,
        unit=record.units.get(record.target, ""),
        inputs=model_inputs(record),
        holdout=HoldoutMetrics(**metrics),
        proof=proof,
        module=module,
    )


def model_inputs(record: ModelRecord) -> tuple[ModelInput, ...]:
    """Return what a record to predict from has to contain: the identity, and the features in order."""
    identity = record.dataset.identity
    return tuple(
        ModelInput(
            name=name,
            type=record.dataset.fields[name],
            unit=record.units.get(name, ""),
            categories=record.layout.categories.get(name, ()),
            missing="dead_letter" if name == identity else "default_branch",
        )
        for name in (identity, *record.layout.features)
    )

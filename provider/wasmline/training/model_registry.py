"""Versions of models: immutable artifacts with their dataset, parameters and metrics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

import pyarrow as pa

from wasmline.errors import (
    InvalidArtifact,
    InvalidLayout,
    InvalidModel,
    InvalidReference,
    RegistryUnavailable,
    VersionExists,
    VersionNotFound,
)
from wasmline.registry import Artifact, Layer, OciLayoutStore, Semver
from wasmline.registry.oci_manifest import decoded, encoded
from wasmline.registry.storage import Storage
from wasmline.training.boosting import TreeParameters
from wasmline.training.dataset_slice import Dataset
from wasmline.training.evaluate import Metrics
from wasmline.training.feature_encoding import FeatureLayout
from wasmline.training.stored_documents import stored_document
from wasmline.training.stored_rows import ROWS_TYPE, decode_rows, encode_rows, forward_schema, held_out_schema

KIND = "models"
CONFIG_TYPE = "application/vnd.wasmline.model.config.v1+json"
MODEL_TYPE = "application/json"
FIRST = "1.0.0"

GATE_SPEC_VERSION: Literal[2] = 2
"""The spec version of models whose rows have all fields, so that the gate can be decided anew from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """Origin and metrics of a model: sufficient to train it again and to predict with it.

    ``columns`` are the model's inputs in the order of ``layout``. ``libraries``, dataset and parameters determine the
    bytes. ``units`` are those of fields. ``held_out_rows`` of the held-out rows and ``forward_rows`` of the forward
    rows, of which ``metrics`` tells the numbers, are stored beside the model; 0 for none. ``window`` is the one
    that was chosen. In spec version 1 there are no forward rows, and held-out rows have no other fields than inputs.
    """

    model: str
    target: str
    layout: FeatureLayout
    columns: tuple[str, ...]
    parameters: TreeParameters
    dataset: Dataset
    dataset_digest: str
    training_rows: int
    metrics: Metrics
    libraries: dict[str, str]
    created: str
    run: str = ""
    units: dict[str, str] = field(default_factory=dict)
    held_out_rows: int = 0
    forward_rows: int = 0
    window: str = ""
    spec_version: Literal[1, 2] = 1

    @property
    def held_out_schema(self) -> pa.Schema:
        """The columns of the held-out rows."""
        return held_out_schema(self.layout, self.dataset, all_fields=self.spec_version == GATE_SPEC_VERSION)

    @property
    def created_ms(self) -> int:
        """When it was trained, in milliseconds since the Unix epoch."""
        return int(datetime.fromisoformat(self.created).timestamp() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One stored version; ``digest`` and ``size`` are those of the model's own bytes."""

    name: str
    version: str
    digest: str
    size: int
    record: ModelRecord


class ModelRegistry:
    """Model versions under one root, a folder or any fsspec URL, as OCI image layouts.

    Every method raises RegistryUnavailable if the storage fails and InvalidReference for an invalid name.
    """

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        """``storage``: the one that is at ``url``, if it is open."""
        self._store = OciLayoutStore(url, storage=storage)
        self.url = self._store.url

    def publish(
        self,
        record: ModelRecord,
        model: bytes,
        *,
        held_out: pa.Table | None = None,
        forward: pa.Table | None = None,
    ) -> ModelVersion:
        """Store a model under the next minor version, starting with 1.0.0, and return it.

        ``held_out``: the rows that were held out, to prove the compiled model with and to compare models on;
        ``forward``, of which there are none without those: forward rows, to compare models on. Of many, some are kept.

        If the latest version has these bytes and this record, except ``created`` and ``run``, it is returned: a
        repeated run adds nothing. The same bytes with another record are another version. Raises InvalidArtifact for a
        record that could not be read back, InvalidLayout if no version can follow the latest.
        """
        layers = [Layer(media_type=MODEL_TYPE, data=model)]
        seed = record.dataset.seed
        if held_out is not None:
            rows, count = encode_rows(held_out, record.held_out_schema, seed=seed)
            layers.append(Layer(media_type=ROWS_TYPE, data=rows))
            record = replace(record, held_out_rows=count)
        if forward is not None:
            rows, count = encode_rows(forward, forward_schema(record.dataset), seed=seed)
            layers.append(Layer(media_type=ROWS_TYPE, data=rows))
            record = replace(record, forward_rows=count)
        try:
            config = Layer(media_type=CONFIG_TYPE, data=encoded(record, ModelRecord))
        except ValueError as error:
            raise InvalidArtifact(f"the model {record.model} cannot be published: {error}") from error
        wanted = (layers[0].digest, _repeatable(decoded(config.data, ModelRecord)))
        version = ""
        while True:
            latest = self.latest(record.model)
            if latest and (latest.digest, _repeatable(latest.record)) == wanted:
                return latest
            tried, version = version, self._next(record.model, latest)
            if version == tried:
                raise RegistryUnavailable(f"{self.url} has {record.model}@{version} but does not list it: retry")
            with suppress(VersionExists):  # another training was first: use the next number
                stored = self._version(self._store.put(KIND, record.model, version, layers=layers, config=config))
                if (stored.digest, _repeatable(stored.record)) == wanted:
                    return stored

    def get(self, name: str, version: str | None = None) -> ModelVersion:
        """Return a version (None: the latest).

        Raises VersionNotFound, InvalidLayout, DigestMismatch, UnsupportedSpecVersion.
        """
        return self._version(self._store.get(KIND, name, version or self._store.latest(KIND, name)))

    def load(self, name: str, version: str) -> tuple[ModelVersion, bytes]:
        """Return a version and the model's verified bytes. Raises the errors of ``get``."""
        artifact = self._store.get(KIND, name, version)
        return self._version(artifact), self._store.read(artifact)

    def read(self, name: str, version: str) -> bytes:
        """Return a model's bytes. Raises the errors of ``get``."""
        return self.load(name, version)[1]

    def held_out(self, name: str, version: str) -> pa.Table:
        """Return the held-out rows that were stored beside a version, in the columns of its record's schema.

        Raises the errors of ``get``, and InvalidModel for a version that was stored without.
        """
        artifact = self._store.get(KIND, name, version)
        record = self._version(artifact).record
        if len(artifact.layers) < 2:
            raise InvalidModel(
                f"{name}@{version} in {self.url} was stored without its held-out rows, and cannot be proven: train it "
                "again"
            )
        return self._rows(artifact, 1, record.held_out_rows, record.held_out_schema)

    def forward(self, name: str, version: str) -> pa.Table | None:
        """Return the forward rows that were stored beside a version, or None. Raises the errors of ``get``."""
        artifact = self._store.get(KIND, name, version)
        record = self._version(artifact).record
        if len(artifact.layers) < 3:
            return None
        return self._rows(artifact, 2, record.forward_rows, forward_schema(record.dataset))

    def _rows(self, artifact: Artifact, layer: int, count: int, schema: pa.Schema) -> pa.Table:
        try:
            return decode_rows(self._store.read(artifact, artifact.layers[layer]), count, schema)
        except ValueError as error:
            what = ("", "held-out", "forward")[layer]
            raise self._store.invalid(artifact, f"its {what} rows: {error}") from error

    def latest(self, name: str) -> ModelVersion | None:
        """Return the highest version, or None for a model without versions."""
        try:
            return self.get(name)
        except VersionNotFound:
            return None

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model in ascending order; none for an unknown one."""
        return self._store.versions(KIND, name)

    def names(self) -> list[str]:
        """Return the models that have a version, sorted."""
        return list(self.catalog())

    def catalog(self) -> dict[str, list[str]]:
        """Return the versions of each model that has one in ascending order, the models sorted."""
        return self._store.catalog(KIND)

    def _next(self, name: str, latest: ModelVersion | None) -> str:
        if latest is None:
            return FIRST
        number = Semver.parse(latest.version)
        version = str(Semver(major=number.major, minor=number.minor + 1, patch=0))
        try:
            Semver.parse(version)
        except InvalidReference as error:
            path = f"{KIND}/{name}/{latest.version}"
            raise InvalidLayout(f"{path} in {self.url}: no version can follow it: remove it", path=path) from error
        return version

    def _version(self, artifact: Artifact) -> ModelVersion:
        """Return the version of an artifact that is a model, or raise InvalidLayout or UnsupportedSpecVersion."""
        try:
            _check_types(artifact, layers=2)
            place = f"{KIND}/{artifact.name}/{artifact.version} in {self.url}"
            record = stored_document(ModelRecord, artifact.config, place, newest=GATE_SPEC_VERSION)
            _check_types(artifact, layers=2 if record.spec_version == GATE_SPEC_VERSION else 1)
            _check_record(record, artifact.name)
        except ValueError as error:
            raise self._store.invalid(artifact, error) from error
        return ModelVersion(
            name=artifact.name,
            version=artifact.version,
            digest=artifact.layers[0].digest,
            size=artifact.layers[0].size,
            record=record,
        )


def _repeatable(record: ModelRecord) -> ModelRecord:
    """Return a record without the fields that differ between two runs of one training."""
    return replace(record, created="", run="")


def _check_types(artifact: Artifact, layers: int) -> None:
    """Raise ValueError for other layers than a model and up to ``layers`` of the rows that it was measured on."""
    types = [artifact.config_type[:140], *(layer.media_type[:140] for layer in artifact.layers[:4])]
    expected = [CONFIG_TYPE, MODEL_TYPE]
    if types not in (expected + [ROWS_TYPE] * count for count in range(layers + 1)):
        raise ValueError(f"expected the media types {CONFIG_TYPE} and {MODEL_TYPE}, found {types}")


def _check_record(record: ModelRecord, name: str) -> None:
    """Raise ValueError for another model's record or no time, and for columns or fields that do not match its layout.

    Columns are counted before they are generated: a few megabytes of features and categories give billions of them.
    """
    if record.model != name:
        raise ValueError(f"it is the record of the model {record.model[:140]!r}")
    if datetime.fromisoformat(record.created).tzinfo is None:
        raise ValueError(f"it was created at {record.created}, without a UTC offset")
    layout = record.layout
    count = sum(len(layout.categories.get(feature, ("",))) for feature in layout.features)
    if count != len(record.columns) or layout.columns != record.columns:
        raise ValueError("its columns are not those of its layout")
    fields = record.dataset.fields
    if missing := {record.dataset.identity, record.dataset.target, *layout.features} - fields.keys():
        raise ValueError(f"its dataset has no field {min(missing)[:140]!r}")
    if {name for name in layout.features if fields[name] == "string"} != layout.categories.keys():
        raise ValueError("its texts are not the features with categories")

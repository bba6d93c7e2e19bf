"""Versions of models: immutable artifacts that carry what they were made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wasmline.documents import decode, encode
from wasmline.errors import VersionExists, VersionNotFound
from wasmline.registry import Artifact, Layer, OciLayoutStore, Semver, digest_of
from wasmline.training.boosting import TreeParameters
from wasmline.training.dataset import Dataset
from wasmline.training.evaluate import Metrics
from wasmline.training.features import FeatureLayout

KIND = "models"
CONFIG_TYPE = "application/vnd.wasmline.model.config.v1+json"
MODEL_TYPE = "application/json"
FIRST = "1.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """Where a model comes from and how good it was: all it takes to train it again and to predict with it.

    ``columns`` are the model's inputs in order, as ``layout`` makes them. ``libraries`` decide about the bytes,
    together with dataset and parameters.
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
    spec_version: Literal[1] = 1


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

    Every method raises RegistryUnavailable where the storage refuses and InvalidReference for an impossible name.
    """

    def __init__(self, url: str) -> None:
        self._store = OciLayoutStore(url)
        self.url = self._store.url

    def publish(self, record: ModelRecord, model: bytes) -> ModelVersion:
        """Store a model under the next minor version, 1.0.0 at first, and return it.

        The same bytes from the same dataset as the latest version are that version: a repeated run adds nothing.
        """
        layer = Layer(media_type=MODEL_TYPE, data=model)
        config = Layer.json(CONFIG_TYPE, record)
        while True:
            latest = self.latest(record.model)
            if latest and _same(latest, record, layer):
                return latest
            version = _next(latest)
            try:
                artifact = self._store.put(KIND, record.model, version, layers=[layer], config=config)
            except VersionExists:
                continue  # another training was faster: number anew
            stored = self._version(artifact)
            if _same(stored, record, layer):
                return stored

    def get(self, name: str, version: str) -> ModelVersion:
        """Return a version. Raises VersionNotFound, InvalidLayout, DigestMismatch, UnsupportedSpecVersion."""
        return self._version(self._store.get(KIND, name, version))

    def read(self, name: str, version: str) -> bytes:
        """Return a model's bytes, checked against their digest. Raises VersionNotFound, DigestMismatch."""
        return self._store.read(self._store.get(KIND, name, version))

    def latest(self, name: str) -> ModelVersion | None:
        """Return the highest version, or None of a model that has none."""
        try:
            return self.get(name, self._store.latest(KIND, name))
        except VersionNotFound:
            return None

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model in ascending order; none of an unknown one."""
        return self._store.versions(KIND, name)

    def names(self) -> list[str]:
        """Return the models that have a version, sorted."""
        return self._store.names(KIND)

    def _version(self, artifact: Artifact) -> ModelVersion:
        record = decode(ModelRecord, encode(dict(artifact.config)))
        if record.model != artifact.name or len(artifact.layers) != 1:
            raise self._store.invalid(artifact, f"it is not one layer of the model {artifact.name}")
        return ModelVersion(
            name=artifact.name,
            version=artifact.version,
            digest=artifact.layers[0].digest,
            size=artifact.layers[0].size,
            record=record,
        )


def _same(stored: ModelVersion, record: ModelRecord, layer: Layer) -> bool:
    return stored.digest == digest_of(layer.data) and stored.record.dataset_digest == record.dataset_digest


def _next(latest: ModelVersion | None) -> str:
    if latest is None:
        return FIRST
    number = Semver.parse(latest.version)
    return str(Semver(major=number.major, minor=number.minor + 1, patch=0))

"""Versions of modules: ``name@version`` identifies bytes with one digest, permanently.

Artifacts follow the CNCF Wasm OCI artifact layout (tag-runtime.cncf.io, "Wasm OCI Artifact Layout"): one layer
``application/wasm`` under a ``application/vnd.wasm.config.v0+json`` configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from wasmline.errors import InvalidArtifact, InvalidReference, VersionExists
from wasmline.printable import bounded_line
from wasmline.registry.artifact_store import Artifact, OciLayoutStore, check_name
from wasmline.registry.creation_time import created_now
from wasmline.registry.oci_annotations import TITLE, VERSION, ArtifactMetadata, annotations_of, parse_metadata
from wasmline.registry.oci_manifest import Descriptor, Layer
from wasmline.registry.storage import Storage

WASM_TYPE = "application/wasm"
WASM_CONFIG_TYPE = "application/vnd.wasm.config.v0+json"
PROVENANCE_TYPE = "application/vnd.in-toto+json"

_KIND = "modules"


class WasmConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of the configuration of the Wasm OCI artifact layout that are read."""

    created: Annotated[datetime, Meta(tz=True)]
    architecture: Literal["wasm"]
    os: Literal["wasip1"]
    layer_digests: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One published module: ``digest`` and ``size_bytes`` are those of its Wasm bytes."""

    name: str
    version: str
    digest: str
    size_bytes: int
    metadata: ArtifactMetadata

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class Registry(Protocol):
    """Published modules. ``version`` None stands for the latest."""

    def publish(
        self,
        name: str,
        version: str,
        wasm: bytes,
        *,
        metadata: ArtifactMetadata | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Version:
        """Publish these bytes with this metadata as ``name@version``; a no-op if it already is that.

        Raises VersionExists for other bytes, and for the same with another description, licence, source or
        declaration; ``created`` and ``revision`` may differ. Raises InvalidArtifact for malformed metadata.
        """

    def get(self, name: str, version: str | None = None) -> Version:
        """Return a version with its metadata. Raises VersionNotFound."""

    def load(self, name: str, version: str | None = None) -> tuple[Version, bytes]:
        """Return a version and its verified bytes. Raises VersionNotFound, DigestMismatch."""

    def read(self, name: str, version: str | None = None) -> bytes:
        """Return a version's bytes, verified. Raises VersionNotFound, DigestMismatch."""

    def provenance(self, name: str, version: str) -> Mapping[str, Any] | None:
        """Return the in-toto statement about a version, or None if it was published without."""

    def names(self) -> list[str]:
        """Return the names of all modules, sorted."""

    def versions(self, name: str) -> list[str]:
        """Return the versions of a module in ascending precedence."""

    def latest(self, name: str) -> Version:
        """Return the highest release, or the highest pre-release if there is no release."""


class FilesystemRegistry:
    """A registry in a folder or under an fsspec URL, as OCI image layouts."""

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        """``storage``: the one that is at ``url``, if it is open."""
        self._store = OciLayoutStore(url, storage=storage)
        self.url = self._store.url

    def publish(
        self,
        name: str,
        version: str,
        wasm: bytes,
        *,
        metadata: ArtifactMetadata | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Version:
        check_name(name)
        module = Layer(media_type=WASM_TYPE, data=wasm, annotations={TITLE: f"{name}.wasm"})
        known = metadata or ArtifactMetadata()
        created = known.created or created_now()
        try:
            config = _config(created, module)
            annotations = annotations_of(name, version, replace(known, created=created))
            wanted = parse_metadata(annotations)
            attachments = [Layer.json(PROVENANCE_TYPE, provenance)] if provenance else []
        except ValueError as error:
            raise InvalidArtifact(f"{name}@{version} cannot be published: {error}") from error
        stored = self._version(
            self._store.put(
                _KIND,
                name,
                version,
                layers=[module],
                config=config,
                annotations=annotations,
                attachments=attachments,
            )
        )
        if differing := stored.metadata.differing(wanted):
            raise VersionExists(
                f"{stored} exists in {self.url} with the same bytes and another declaration, which differs in "
                f"{bounded_line(', '.join(differing))}; versions are immutable: publish under a new version",
                name=name,
                version=version,
            )
        return stored

    def get(self, name: str, version: str | None = None) -> Version:
        return self._version(self._artifact(name, version))

    def load(self, name: str, version: str | None = None) -> tuple[Version, bytes]:
        artifact = self._artifact(name, version)
        return self._version(artifact), self._store.read(artifact)

    def read(self, name: str, version: str | None = None) -> bytes:
        return self.load(name, version)[1]

    def provenance(self, name: str, version: str) -> Mapping[str, Any] | None:
        artifact = self._artifact(name, version)
        for attachment in artifact.attachments:
            if attachment.media_type == PROVENANCE_TYPE:
                return self._store.document(artifact, attachment, dict[str, Any])
        return None

    def names(self) -> list[str]:
        return self._store.names(_KIND)

    def versions(self, name: str) -> list[str]:
        return self._store.versions(_KIND, name)

    def latest(self, name: str) -> Version:
        return self.get(name, None)

    def _artifact(self, name: str, version: str | None) -> Artifact:
        return self._store.get(_KIND, name, version or self._store.latest(_KIND, name))

    def _version(self, artifact: Artifact) -> Version:
        """Return the version of an artifact that is a module, or raise InvalidLayout."""
        try:
            layer = _module_of(artifact)
            metadata = parse_metadata(artifact.annotations)
        except ValueError as error:
            raise self._store.invalid(artifact, error) from error
        return Version(
            name=artifact.name,
            version=artifact.version,
            digest=layer.digest,
            size_bytes=layer.size,
            metadata=metadata,
        )


def parse_reference(text: str) -> tuple[str, str | None]:
    """Return the name and version of ``name@version``; ``name`` and ``name@latest`` have version None."""
    name, at, version = text.partition("@")
    if not name or (at and not version):
        raise InvalidReference(f"{text!r} is not NAME@VERSION", reference=text)
    return name, None if version in ("", "latest") else version


def _config(created: str, module: Layer) -> Layer:
    """Return the configuration of a module. Raises ValueError for a time not in RFC 3339."""
    config = {"created": created, "architecture": "wasm", "os": "wasip1", "layerDigests": [module.digest]}
    msgspec.convert(config, WasmConfig)
    return Layer.json(WASM_CONFIG_TYPE, config)


def _module_of(artifact: Artifact) -> Descriptor:
    """Return an artifact's single layer. Raises ValueError for another version's, and for a non-module."""
    named = [artifact.annotations.get(key, "")[:140] for key in (TITLE, VERSION)]
    if named != [artifact.name, artifact.version]:
        raise ValueError(f"it is the manifest of {'@'.join(named)!r}")
    types = [artifact.config_type[:140], *(layer.media_type[:140] for layer in artifact.layers[:2])]
    if types != [WASM_CONFIG_TYPE, WASM_TYPE]:
        raise ValueError(f"expected the media types {WASM_CONFIG_TYPE} and {WASM_TYPE}, found {types}")
    layer = artifact.layers[0]
    if msgspec.convert(artifact.config, WasmConfig).layer_digests != [layer.digest]:
        raise ValueError(f"its configuration is not that of {layer.digest}")
    return layer

"""Versions of modules: ``name@version`` names bytes with one digest, for ever.

Artifacts follow the CNCF Wasm OCI artifact layout (tag-runtime.cncf.io, "Wasm OCI Artifact Layout"): one layer
``application/wasm`` under a ``application/vnd.wasm.config.v0+json`` configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from wasmline.errors import InvalidReference
from wasmline.registry.layout import Layer, created_now, digest_of
from wasmline.registry.oci import Artifact, OciLayoutStore

WASM_TYPE = "application/wasm"
WASM_CONFIG_TYPE = "application/vnd.wasm.config.v0+json"
PROVENANCE_TYPE = "application/vnd.in-toto+json"
TRANSFORM_ANNOTATION = "wasmline.transform"

_KIND = "modules"
_OCI = "org.opencontainers.image."


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactMetadata:
    """What is known of a module beside its bytes.

    ``transform`` is what its project declares (topics, env, limits) as JSON-able data, the defaults of a deployment;
    ``revision`` the source's git commit; ``created`` RFC 3339, None for now.
    """

    description: str = ""
    revision: str | None = None
    source: str | None = None
    licenses: str | None = None
    created: str | None = None
    transform: Mapping[str, Any] = field(default_factory=dict)


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
        """Make ``name@version`` these bytes; a no-op if it is them already. Raises VersionExists."""

    def get(self, name: str, version: str | None = None) -> Version:
        """Return what is known of a version. Raises VersionNotFound."""

    def read(self, name: str, version: str | None = None) -> bytes:
        """Return a version's bytes, verified. Raises VersionNotFound, DigestMismatch."""

    def provenance(self, name: str, version: str) -> Mapping[str, Any] | None:
        """Return the in-toto statement about a version, or None where it was published without."""

    def names(self) -> list[str]:
        """Return the names of all modules, sorted."""

    def versions(self, name: str) -> list[str]:
        """Return the versions of a module in ascending precedence."""

    def latest(self, name: str) -> Version:
        """Return the highest release, or the highest pre-release where there is no release."""


class FilesystemRegistry:
    """A registry in a folder or under an fsspec URL, as OCI image layouts."""

    def __init__(self, url: str) -> None:
        self._store = OciLayoutStore(url)
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
        known = metadata or ArtifactMetadata()
        created = known.created or created_now()
        config = {"created": created, "architecture": "wasm", "os": "wasip1", "layerDigests": [digest_of(wasm)]}
        artifact = self._store.put(
            _KIND,
            name,
            version,
            layers=[Layer(media_type=WASM_TYPE, data=wasm, annotations={f"{_OCI}title": f"{name}.wasm"})],
            config=Layer.json(WASM_CONFIG_TYPE, config),
            annotations=_annotations(name, version, created, known),
            attachments=[Layer.json(PROVENANCE_TYPE, provenance)] if provenance else [],
        )
        return _version(artifact)

    def get(self, name: str, version: str | None = None) -> Version:
        return _version(self._artifact(name, version))

    def read(self, name: str, version: str | None = None) -> bytes:
        return self._store.read(self._artifact(name, version))

    def provenance(self, name: str, version: str) -> Mapping[str, Any] | None:
        artifact = self._artifact(name, version)
        for document in artifact.attachments:
            if document.media_type == PROVENANCE_TYPE:
                return msgspec.json.decode(self._store.read(artifact, document), type=dict[str, Any])
        return None

    def names(self) -> list[str]:
        return self._store.names(_KIND)

    def versions(self, name: str) -> list[str]:
        return self._store.versions(_KIND, name)

    def latest(self, name: str) -> Version:
        return self.get(name, None)

    def _artifact(self, name: str, version: str | None) -> Artifact:
        return self._store.get(_KIND, name, version or self._store.latest(_KIND, name))


def parse_reference(text: str) -> tuple[str, str | None]:
    """Return the name and version of ``name@version``; ``name`` and ``name@latest`` have version None."""
    name, at, version = text.partition("@")
    if not name or (at and not version):
        raise InvalidReference(f"{text!r} is not NAME@VERSION", reference=text)
    return name, None if version in ("", "latest") else version


def _annotations(name: str, version: str, created: str, metadata: ArtifactMetadata) -> dict[str, str]:
    optional = {
        "description": metadata.description,
        "revision": metadata.revision,
        "source": metadata.source,
        "licenses": metadata.licenses,
    }
    annotations = {f"{_OCI}{key}": value for key, value in optional.items() if value}
    if metadata.transform:
        annotations[TRANSFORM_ANNOTATION] = msgspec.json.encode(metadata.transform, order="deterministic").decode()
    return annotations | {f"{_OCI}title": name, f"{_OCI}version": version, f"{_OCI}created": created}


def _version(artifact: Artifact) -> Version:
    known = artifact.annotations
    return Version(
        name=artifact.name,
        version=artifact.version,
        digest=artifact.layers[0].digest,
        size_bytes=artifact.layers[0].size,
        metadata=ArtifactMetadata(
            description=known.get(f"{_OCI}description", ""),
            revision=known.get(f"{_OCI}revision"),
            source=known.get(f"{_OCI}source"),
            licenses=known.get(f"{_OCI}licenses"),
            created=known.get(f"{_OCI}created"),
            transform=msgspec.json.decode(known.get(TRANSFORM_ANNOTATION, "{}")),
        ),
    )

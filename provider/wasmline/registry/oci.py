"""Named, versioned, immutable artifacts as OCI image layouts, one layout per version.

The folder ``<root>/<kind>/<name>/<version>`` is a complete layout (``oci-layout``, ``index.json``, ``blobs/sha256/…``),
so that ``oras``, ``skopeo`` and ``crane`` can copy it to any registry. Documents about an artifact (its provenance, a
model's metrics) are manifests of their own whose ``subject`` is the artifact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from wasmline.errors import DigestMismatch, InvalidReference, RegistryUnavailable, VersionExists, VersionNotFound
from wasmline.registry.layout import (
    EMPTY,
    INDEX_FILE,
    LAYOUT_FILE,
    Descriptor,
    Index,
    Layer,
    Manifest,
    blob_path,
    digest_of,
    index_of,
    manifest_of,
)
from wasmline.registry.semver import Semver, by_precedence, newest
from wasmline.registry.storage import open_storage

T = TypeVar("T")

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One stored version. ``digest`` is its manifest's; ``attachments`` are the documents about it."""

    kind: str
    name: str
    version: str
    digest: str
    config: Mapping[str, Any]
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str]
    attachments: tuple[Descriptor, ...] = ()


class OciLayoutStore:
    """Artifacts under one root, a folder or any fsspec URL. Nothing is ever changed or half visible.

    Every method raises InvalidReference for a name or version that cannot be one, and RegistryUnavailable where the
    storage refuses.
    """

    def __init__(self, url: str) -> None:
        self._storage = open_storage(url)
        self.url = self._storage.url

    def put(
        self,
        kind: str,
        name: str,
        version: str,
        *,
        layers: Sequence[Layer],
        config: Layer = EMPTY,
        annotations: Mapping[str, str] | None = None,
        attachments: Sequence[Layer] = (),
    ) -> Artifact:
        """Store an artifact and return it as it is stored.

        ``kind`` is a folder such as ``modules`` or ``models``; ``config`` must be a JSON object. The same layers under
        the same version are a no-op that returns what is there; other layers raise VersionExists.
        """
        folder = _folder(kind, name, version)
        if self._storage.read(f"{folder}/{INDEX_FILE}") is None:
            manifest = manifest_of(layers, config, annotations or {})
            about = [
                (document.media_type, manifest_of([document], EMPTY, {}, subject=Descriptor.of(manifest)))
                for document in attachments
            ]
            blobs = [
                *layers,
                config,
                manifest,
                *attachments,
                *(layer for _, layer in about),
                *([EMPTY] if about else []),
            ]
            contents = sorted({blob_path(blob.digest): blob.data for blob in blobs}.items())
            index = (INDEX_FILE, index_of(manifest, about, version=version))
            if self._storage.create(folder, [LAYOUT_FILE, *contents, index]):
                return self.get(kind, name, version)
        stored = self.get(kind, name, version)
        if [blob.digest for blob in stored.layers] != [layer.digest for layer in layers]:
            raise VersionExists(
                f"{name}@{version} exists in {self.url} with other bytes ({stored.layers[0].digest}, not "
                f"{layers[0].digest}); versions are immutable: publish under a new version",
                name=name,
                version=version,
            )
        return stored

    def get(self, kind: str, name: str, version: str) -> Artifact:
        """Return a version without its layers' bytes. Raises VersionNotFound, DigestMismatch."""
        folder = _folder(kind, name, version)
        index = self._storage.read(f"{folder}/{INDEX_FILE}")
        if index is None:
            raise self._not_found(kind, name, version)
        described, *about = self._decoded(index, Index, folder).manifests
        manifest = self._decoded(self._blob(folder, described.digest), Manifest, folder)
        documents = [self._decoded(self._blob(folder, entry.digest), Manifest, folder) for entry in about]
        return Artifact(
            kind=kind,
            name=name,
            version=version,
            digest=described.digest,
            config=self._decoded(self._blob(folder, manifest.config.digest), dict[str, Any], folder),
            layers=tuple(manifest.layers),
            annotations=manifest.annotations,
            attachments=tuple(document.layers[0] for document in documents),
        )

    def read(self, artifact: Artifact, blob: Descriptor | None = None) -> bytes:
        """Return the bytes of a layer or attachment (None: of the first layer). Raises DigestMismatch."""
        wanted = blob or artifact.layers[0]
        return self._blob(_folder(artifact.kind, artifact.name, artifact.version), wanted.digest)

    def names(self, kind: str) -> list[str]:
        """Return the names that have a version, sorted."""
        return self._storage.folders(kind, f"*/{INDEX_FILE}")

    def versions(self, kind: str, name: str) -> list[str]:
        """Return the versions of a name in ascending precedence; none of an unknown name."""
        _check_name(name)
        return by_precedence(self._storage.folders(f"{kind}/{name}", INDEX_FILE))

    def latest(self, kind: str, name: str) -> str:
        """Return the highest release, or the highest pre-release of a name that has no release."""
        version = newest(self.versions(kind, name))
        if version is None:
            raise self._not_found(kind, name, None)
        return version

    def _blob(self, folder: str, digest: str) -> bytes:
        data = self._storage.read(f"{folder}/{blob_path(digest)}")
        actual = "missing" if data is None else digest_of(data)
        if data is None or actual != digest:
            raise DigestMismatch(
                f"the blob {digest} of {folder} in {self.url} is {actual}: it was damaged or changed after it was "
                "published; restore it, or publish a new version",
                expected=digest,
                actual=actual,
            )
        return data

    def _decoded(self, data: bytes, kind: type[T], folder: str) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise RegistryUnavailable(f"{folder} in {self.url} is not an OCI image layout: {error}") from error

    def _not_found(self, kind: str, name: str, version: str | None) -> VersionNotFound:
        wanted = f"{name}@{version}" if version else name
        known = self._known(kind, name)
        return VersionNotFound(f"no {wanted} among the {kind} in {self.url}: {known}", name=name, version=version)

    def _known(self, kind: str, name: str) -> str:
        if versions := self.versions(kind, name):
            return f"there is {', '.join(f'{name}@{version}' for version in versions)}"
        names = self.names(kind)
        if close := get_close_matches(name, names):
            return f"did you mean {' or '.join(close)}?"
        return f"there is {', '.join(names)}" if names else "there are none"


def _folder(kind: str, name: str, version: str) -> str:
    _check_name(name)
    Semver.parse(version)
    return f"{kind}/{name}/{version}"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > 128:
        raise InvalidReference(
            f"{name!r} cannot be a name: use at most 128 lower-case letters and digits, with single . _ or - between",
            reference=name,
        )

"""Named, versioned, immutable artifacts as OCI image layouts, one layout per version.

The folder ``<root>/<kind>/<name>/<version>`` is a complete layout (``oci-layout``, ``index.json``, ``blobs/sha256/…``),
so that ``oras``, ``skopeo`` and ``crane`` can copy it to any registry. Documents about an artifact (its provenance, a
model's metrics) are manifests of their own whose ``subject`` is the artifact.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from wasmline.digests import digest_of
from wasmline.errors import (
    DigestMismatch,
    InvalidArtifact,
    InvalidLayout,
    InvalidReference,
    RegistryError,
    VersionExists,
    VersionNotFound,
)
from wasmline.printable import bounded_line
from wasmline.registry.layout_builder import layout_files
from wasmline.registry.oci_manifest import (
    EMPTY,
    INDEX_FILE,
    LAYOUT_FILE,
    MAX_DOCUMENT_BYTES,
    Descriptor,
    Index,
    Layer,
    LayoutMarker,
    Manifest,
    blob_path,
    decoded,
)
from wasmline.registry.semver import Semver, by_precedence, newest
from wasmline.registry.storage import Storage, open_storage

logger = logging.getLogger(__name__)

T = TypeVar("T")

NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
"""Names of transforms and models."""

_SHOWN = 10
"""Maximum names and versions in a message."""

_COMPARED_NAMES = 1000
"""Maximum names searched for one similar to an unknown name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One stored version. ``digest`` is its manifest's; ``attachments`` are the documents about it."""

    kind: str
    name: str
    version: str
    digest: str
    config_type: str
    config: Mapping[str, Any]
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str]
    attachments: tuple[Descriptor, ...] = ()


class OciLayoutStore:
    """Artifacts under one root, a folder or any fsspec URL. They never change and are never partly visible.

    Stored content is not trusted: its size is bounded, its digests and version are verified, and it is decoded
    strictly. Every method raises InvalidReference for an invalid name or version, InvalidLayout or DigestMismatch for
    malformed content, and RegistryUnavailable if the storage fails.
    """

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        """``storage``: the one that is at ``url``, if it is open."""
        self._storage = storage or open_storage(url)
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
        """Store an artifact and return the stored one, with verified layers.

        ``kind`` is a folder such as ``modules`` or ``models``; ``config`` must be a JSON object. The same layers under
        the same version are a no-op that returns the existing one; other layers raise VersionExists. Raises
        InvalidArtifact, with nothing written, for an artifact that could not be read back.
        """
        folder = _folder(kind, name, version)
        try:
            files = layout_files(version, layers, config, annotations or {}, attachments)
        except (TypeError, ValueError) as error:
            raise InvalidArtifact(f"{name}@{version} cannot be published: {error}") from error
        if self._storage.read(f"{folder}/{INDEX_FILE}", 0) is None:
            self._storage.create(folder, files)
        stored = self.get(kind, name, version)
        if [blob.digest for blob in stored.layers] != [layer.digest for layer in layers]:
            raise VersionExists(
                f"{name}@{version} exists in {self.url} with other bytes ({stored.layers[0].digest}, not "
                f"{layers[0].digest}); versions are immutable: publish under a new version",
                name=name,
                version=version,
            )
        for blob in stored.layers:
            self._blob(folder, blob)
        return stored

    def get(self, kind: str, name: str, version: str) -> Artifact:
        """Return a version without its layers' bytes. Raises VersionNotFound."""
        folder = _folder(kind, name, version)
        index_file = f"{folder}/{INDEX_FILE}"
        if (data := self._storage.read(index_file, MAX_DOCUMENT_BYTES)) is None:
            raise self._not_found(kind, name, version)
        marker_file = f"{folder}/{LAYOUT_FILE[0]}"
        self._decoded(marker_file, self._storage.read(marker_file, MAX_DOCUMENT_BYTES) or b"", LayoutMarker)
        try:
            described, about = self._decoded(index_file, data, Index).named(version)
        except ValueError as error:
            raise self._invalid(index_file, error) from error
        manifest = self._document(folder, described, Manifest)
        return Artifact(
            kind=kind,
            name=name,
            version=version,
            digest=described.digest,
            config_type=manifest.config.media_type,
            config=self._document(folder, manifest.config, dict[str, Any]),
            layers=tuple(manifest.layers),
            annotations=manifest.annotations,
            attachments=tuple(self._attachment(folder, entry, described) for entry in about),
        )

    def read(self, artifact: Artifact, blob: Descriptor | None = None) -> bytes:
        """Return the bytes of a layer or attachment (None: of the first layer)."""
        return self._blob(_folder(artifact.kind, artifact.name, artifact.version), blob or artifact.layers[0])

    def document(self, artifact: Artifact, blob: Descriptor, kind: type[T]) -> T:
        """Return a JSON attachment as a ``kind``."""
        return self._document(_folder(artifact.kind, artifact.name, artifact.version), blob, kind)

    def invalid(self, artifact: Artifact, problem: object) -> InvalidLayout:
        """Return the error about an artifact's manifest."""
        folder = _folder(artifact.kind, artifact.name, artifact.version)
        return self._invalid(f"{folder}/{blob_path(artifact.digest)}", problem)

    def names(self, kind: str) -> list[str]:
        """Return the names that have a version, sorted; invalid names and unreadable folders are skipped."""
        return list(self.catalog(kind))

    def catalog(self, kind: str) -> dict[str, list[str]]:
        """Return the versions of each of the ``names`` in ascending precedence."""
        found = {name: self._readable_versions(kind, name) for name in self._storage.folders(kind)}
        return {name: versions for name, versions in found.items() if versions}

    def versions(self, kind: str, name: str) -> list[str]:
        """Return the versions of a name in ascending precedence; none for an unknown name."""
        check_name(name)
        return by_precedence(self._storage.folders(f"{kind}/{name}", INDEX_FILE))

    def latest(self, kind: str, name: str) -> str:
        """Return the highest release, or the highest pre-release of a name without releases."""
        version = newest(self.versions(kind, name))
        if version is None:
            raise self._not_found(kind, name, None)
        return version

    def _readable_versions(self, kind: str, name: str) -> list[str]:
        if not NAME.fullmatch(name):
            return []
        try:
            return self.versions(kind, name)
        except RegistryError as error:
            logger.warning("%s/%s is passed over: %s", kind, name, error)
            return []

    def _attachment(self, folder: str, entry: Descriptor, about: Descriptor) -> Descriptor:
        manifest = self._document(folder, entry, Manifest)
        if manifest.subject is None or manifest.subject.digest != about.digest:
            raise self._invalid(f"{folder}/{blob_path(entry.digest)}", f"its subject is not {about.digest}")
        return manifest.layers[0]

    def _document(self, folder: str, blob: Descriptor, kind: type[T]) -> T:
        path = f"{folder}/{blob_path(blob.digest)}"
        if blob.size > MAX_DOCUMENT_BYTES:
            raise self._invalid(
                path, f"its descriptor says {blob.size} bytes; a document takes at most {MAX_DOCUMENT_BYTES}"
            )
        return self._decoded(path, self._blob(folder, blob), kind)

    def _blob(self, folder: str, blob: Descriptor) -> bytes:
        data = self._storage.read(f"{folder}/{blob_path(blob.digest)}", blob.size)
        if data is not None and len(data) == blob.size and digest_of(data) == blob.digest:
            return data
        actual = _difference(data, blob)
        raise DigestMismatch(
            f"the blob {blob.digest} of {folder} in {self.url} is {actual}: it was damaged or changed after it was "
            "published; restore it, or remove the folder",
            expected=blob.digest,
            actual=actual,
            path=folder,
        )

    def _decoded(self, path: str, data: bytes, kind: type[T]) -> T:
        try:
            return decoded(data, kind)
        except ValueError as error:
            raise self._invalid(path, error) from error

    def _invalid(self, path: str, problem: object) -> InvalidLayout:
        folder = "/".join(path.split("/")[:3])
        file = path.removeprefix(f"{folder}/")
        return InvalidLayout(
            f"{folder} in {self.url} is not an OCI image layout of that version: {file}: "
            f"{bounded_line(problem)}; restore the folder, or remove it",
            path=path,
        )

    def _not_found(self, kind: str, name: str, version: str | None) -> VersionNotFound:
        wanted = f"{name}@{version}" if version else name
        known = self._known(kind, name)
        return VersionNotFound(f"no {wanted} among the {kind} in {self.url}: {known}", name=name, version=version)

    def _known(self, kind: str, name: str) -> str:
        if versions := self.versions(kind, name):
            return f"there is {_listed([f'{name}@{version}' for version in reversed(versions)])}"
        names = self.names(kind)
        if close := get_close_matches(name, names[:_COMPARED_NAMES]):
            return f"did you mean {' or '.join(close)}?"
        return f"there is {_listed(names)}" if names else "there are none"


def check_name(name: str) -> None:
    """Raise InvalidReference for an invalid artifact name: a name is also a folder."""
    if not NAME.fullmatch(name) or len(name) > 128:
        raise InvalidReference(
            f"{name[:140]!r} cannot be a name: use at most 128 lower-case letters and digits, with single . _ or - "
            "between",
            reference=name,
        )


def _folder(kind: str, name: str, version: str) -> str:
    check_name(name)
    Semver.parse(version)
    return f"{kind}/{name}/{version}"


def _difference(data: bytes | None, blob: Descriptor) -> str:
    """Return how stored bytes differ from their descriptor."""
    if data is None:
        return "missing"
    if len(data) != blob.size:
        return f"{'longer' if len(data) > blob.size else 'shorter'} than {blob.size} bytes"
    return digest_of(data)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

"""The documents of an OCI image layout (image specification 1.1): descriptors, manifests and the index."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
REFERENCE_NAME = "org.opencontainers.image.ref.name"
LAYOUT_FILE = ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
INDEX_FILE = "index.json"


def digest_of(data: bytes) -> str:
    """Return the content address of bytes, ``sha256:<hex>``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def blob_path(digest: str) -> str:
    """Return where a layout keeps the blob with this digest."""
    algorithm, _, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"


def created_now() -> str:
    """Return the time to stamp on an artifact, RFC 3339: SOURCE_DATE_EPOCH where it is set, else the clock."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Bytes to store, and what they are."""

    media_type: str
    data: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, media_type: str, document: Any) -> Layer:
        """Return a document as a layer: equal documents give equal bytes."""
        return cls(media_type=media_type, data=msgspec.json.encode(document, order="deterministic"))

    @property
    def digest(self) -> str:
        return digest_of(self.data)


EMPTY = Layer(media_type=EMPTY_TYPE, data=b"{}")
"""What the specification puts where an artifact has no configuration."""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pointer to a blob by digest."""

    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    annotations: dict[str, str] = {}

    @classmethod
    def of(cls, layer: Layer) -> Descriptor:
        annotations = dict(sorted(layer.annotations.items()))
        return cls(media_type=layer.media_type, digest=layer.digest, size=len(layer.data), annotations=annotations)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One artifact: its configuration and its layers; with a ``subject``, a document about that other manifest."""

    schema_version: int
    media_type: str
    config: Descriptor
    layers: list[Descriptor]
    artifact_type: str | None = None
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a layout holds: here the artifact's manifest, then the manifests about it."""

    schema_version: int
    media_type: str
    manifests: list[Descriptor]


def manifest_of(
    layers: Sequence[Layer],
    config: Layer,
    annotations: Mapping[str, str],
    *,
    subject: Descriptor | None = None,
) -> Layer:
    """Return the manifest over a configuration and layers, itself as a layer."""
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST_TYPE,
        config=Descriptor.of(config),
        layers=[Descriptor.of(layer) for layer in layers],
        artifact_type=layers[0].media_type if config == EMPTY else None,
        subject=subject,
        annotations=dict(sorted(annotations.items())),
    )
    return Layer(media_type=MANIFEST_TYPE, data=msgspec.json.encode(manifest))


def index_of(manifest: Layer, about: Sequence[tuple[str, Layer]], *, version: str) -> bytes:
    """Return the ``index.json`` that names a manifest by its version, and the manifests about it by what they are."""
    named = Layer(media_type=MANIFEST_TYPE, data=manifest.data, annotations={REFERENCE_NAME: version})
    others = [msgspec.structs.replace(Descriptor.of(layer), artifact_type=kind) for kind, layer in about]
    index = Index(schema_version=2, media_type=INDEX_TYPE, manifests=[Descriptor.of(named), *others])
    return msgspec.json.encode(index)

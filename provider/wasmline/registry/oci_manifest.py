"""The documents of an OCI image layout (image specification 1.1): descriptors, manifests and the index.

Decoded documents are input from the writers of a registry and not trusted; the types define the checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from wasmline.digests import digest_of
from wasmline.documents import decode_strictly
from wasmline.transform_limits import MAX_MODULE_BYTES

T = TypeVar("T")

MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
REFERENCE_NAME = "org.opencontainers.image.ref.name"
LAYOUT_FILE = ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
INDEX_FILE = "index.json"

MAX_DOCUMENT_BYTES = 4 * 2**20
"""Maximum of an index, its manifests together, a configuration or an attachment. Registries accept 4 MiB."""

MAX_LAYER_BYTES = MAX_MODULE_BYTES
"""Maximum size of a layer of any kind: no kind of artifact has larger ones than modules."""

MAX_MANIFESTS = 32
"""Maximum manifests of an index: the artifact's and those of its attachments."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def blob_path(digest: str) -> str:
    """Return the path of the blob with this digest in a layout."""
    algorithm, _, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"


def require_digest(digest: str) -> None:
    """Raise ValueError for a digest that is no SHA-256, and so may not be a part of a path."""
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"the digest {digest[:140]!r} is not supported: expected sha256: and 64 hexadecimal digits")


def decoded(data: bytes, kind: type[T]) -> T:
    """Return the ``kind`` encoded in a JSON document of at most MAX_DOCUMENT_BYTES: see ``decode_strictly``."""
    return decode_strictly(kind, data, MAX_DOCUMENT_BYTES)


def encoded(document: Any, kind: type) -> bytes:
    """Return a document as JSON that ``decoded`` accepts as a ``kind``; equal documents give equal bytes.

    Raises ValueError for values that are not JSON, and for documents that ``decoded`` would reject.
    """
    try:
        data = msgspec.json.encode(document, order="deterministic")
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    decoded(data, kind)
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Bytes to store, with their media type."""

    media_type: str
    data: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, media_type: str, document: Any) -> Layer:
        """Return an object as a layer. Raises the ValueError of ``encoded``."""
        try:
            return cls(media_type=media_type, data=encoded(document, dict[str, Any]))
        except ValueError as error:
            raise ValueError(f"a {media_type}: {error}") from error

    @property
    def digest(self) -> str:
        return digest_of(self.data)


EMPTY = Layer(media_type=EMPTY_TYPE, data=b"{}")
"""The specification's configuration of an artifact without one."""


class LayoutMarker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file that makes a folder an image layout."""

    image_layout_version: Literal["1.0.0"]


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pointer to a blob. The digest is a SHA-256, so that it can be a part of a path."""

    media_type: str
    digest: str
    size: Annotated[int, Meta(ge=0, le=MAX_LAYER_BYTES)]
    artifact_type: str | None = None
    annotations: dict[str, str] = {}

    def __post_init__(self) -> None:
        require_digest(self.digest)

    @classmethod
    def of(cls, layer: Layer) -> Descriptor:
        annotations = dict(sorted(layer.annotations.items()))
        return cls(media_type=layer.media_type, digest=layer.digest, size=len(layer.data), annotations=annotations)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One artifact: its configuration and its layers; with a ``subject``, a document about that other manifest."""

    schema_version: Literal[2]
    media_type: Literal["application/vnd.oci.image.manifest.v1+json"]
    config: Descriptor
    layers: Annotated[list[Descriptor], Meta(min_length=1)]
    artifact_type: str | None = None
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The index of a layout: the artifact's manifest, named by its version, and the manifests about it."""

    schema_version: Literal[2]
    media_type: Literal["application/vnd.oci.image.index.v1+json"] = INDEX_TYPE  # optional in the specification
    manifests: Annotated[list[Descriptor], Meta(min_length=1, max_length=MAX_MANIFESTS)]

    def __post_init__(self) -> None:
        if sum(each.size for each in self.manifests) > MAX_DOCUMENT_BYTES:
            raise ValueError(f"its manifests take more than {MAX_DOCUMENT_BYTES} bytes together")

    def named(self, version: str) -> tuple[Descriptor, list[Descriptor]]:
        """Return the manifest of ``version`` and those of its attachments. Raises ValueError for another version's."""
        matches = [each for each in self.manifests if each.annotations.get(REFERENCE_NAME) == version]
        if len(matches) != 1:
            names = [each.annotations.get(REFERENCE_NAME, "")[:140] for each in self.manifests]
            raise ValueError(f"expected one manifest named {version}, found {names}: was the folder copied or renamed?")
        if wrong := [each.media_type[:140] for each in self.manifests if each.media_type != MANIFEST_TYPE]:
            raise ValueError(f"expected manifests of the media type {MANIFEST_TYPE}, found {wrong}")
        return matches[0], [each for each in self.manifests if each is not matches[0]]

"""The files of an OCI image layout that is to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from wasmline.errors import InvalidArtifact
from wasmline.registry.layout import (
    EMPTY,
    INDEX_FILE,
    INDEX_TYPE,
    LAYOUT_FILE,
    MANIFEST_TYPE,
    MAX_BLOB_BYTES,
    MAX_DOCUMENT_BYTES,
    MAX_MANIFESTS,
    REFERENCE_NAME,
    Descriptor,
    Index,
    Layer,
    Manifest,
    blob_path,
)
from wasmline.registry.storage import File


def layout_files(
    version: str, layers: Sequence[Layer], config: Layer, annotations: Mapping[str, str], attachments: Sequence[Layer]
) -> list[File]:
    """Return the files of an artifact's layout, the index last.

    Raises InvalidArtifact for what is too large to be read again.
    """
    manifest = _manifest_of(layers, config, annotations)
    subject = Descriptor.of(manifest)
    about = [(document.media_type, _manifest_of([document], EMPTY, {}, subject=subject)) for document in attachments]
    documents = [config, manifest, *attachments, *(layer for _, layer in about), *([EMPTY] if about else [])]
    _check_sizes(layers, documents, manifests=1 + len(about))
    contents = {blob_path(blob.digest): blob.data for blob in [*layers, *documents]}
    return [LAYOUT_FILE, *sorted(contents.items()), (INDEX_FILE, _index_of(manifest, about, version=version))]


def _check_sizes(layers: Sequence[Layer], documents: Sequence[Layer], *, manifests: int) -> None:
    """Refuse what ``get`` and ``read`` would refuse."""
    for blobs, limit in ((layers, MAX_BLOB_BYTES), (documents, MAX_DOCUMENT_BYTES)):
        for blob in blobs:
            if len(blob.data) > limit:
                raise InvalidArtifact(f"a {blob.media_type} of {len(blob.data)} bytes: the registry keeps {limit}")
    if manifests > MAX_MANIFESTS:
        raise InvalidArtifact(f"{manifests - 1} attachments: the registry keeps {MAX_MANIFESTS - 1} of an artifact")


def _manifest_of(
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


def _index_of(manifest: Layer, about: Sequence[tuple[str, Layer]], *, version: str) -> bytes:
    """Return the ``index.json`` that names a manifest by its version, and the manifests about it by what they are."""
    named = Layer(media_type=MANIFEST_TYPE, data=manifest.data, annotations={REFERENCE_NAME: version})
    others = [msgspec.structs.replace(Descriptor.of(layer), artifact_type=kind) for kind, layer in about]
    index = Index(schema_version=2, media_type=INDEX_TYPE, manifests=[Descriptor.of(named), *others])
    return msgspec.json.encode(index)

"""Builds the files of an OCI image layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wasmline.registry.oci_manifest import (
    EMPTY,
    INDEX_FILE,
    INDEX_TYPE,
    LAYOUT_FILE,
    MANIFEST_TYPE,
    MAX_DOCUMENT_BYTES,
    MAX_LAYER_BYTES,
    REFERENCE_NAME,
    Descriptor,
    Index,
    Layer,
    Manifest,
    blob_path,
    decoded,
    encoded,
)
from wasmline.registry.storage import File


def layout_files(
    version: str, layers: Sequence[Layer], config: Layer, annotations: Mapping[str, str], attachments: Sequence[Layer]
) -> list[File]:
    """Return the files of an artifact's layout, the index last.

    Raises ValueError for an artifact that could not be read back: too large, without a layer, or with a configuration
    that is not an object.
    """
    _check_sizes(layers, MAX_LAYER_BYTES)
    _check_sizes([config, *attachments], MAX_DOCUMENT_BYTES)
    _check_configuration(config)
    manifest = _manifest_of(layers, config, annotations)
    subject = Descriptor.of(manifest)
    about = [(document.media_type, _manifest_of([document], EMPTY, {}, subject=subject)) for document in attachments]
    blobs = [*layers, config, manifest, *attachments, *(layer for _, layer in about), *([EMPTY] if about else [])]
    contents = {blob_path(blob.digest): blob.data for blob in blobs}
    return [LAYOUT_FILE, *sorted(contents.items()), (INDEX_FILE, _index_of(manifest, about, version=version))]


def _check_sizes(blobs: Sequence[Layer], limit: int) -> None:
    for blob in blobs:
        if len(blob.data) > limit:
            raise ValueError(f"a {blob.media_type} of {len(blob.data)} bytes: the registry allows {limit}")


def _check_configuration(config: Layer) -> None:
    try:
        decoded(config.data, dict[str, Any])
    except ValueError as error:
        raise ValueError(f"its configuration: {error}") from error


def _manifest_of(
    layers: Sequence[Layer],
    config: Layer,
    annotations: Mapping[str, str],
    *,
    subject: Descriptor | None = None,
) -> Layer:
    """Return the manifest of a configuration and layers, itself as a layer."""
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST_TYPE,
        config=Descriptor.of(config),
        layers=[Descriptor.of(layer) for layer in layers],
        artifact_type=layers[0].media_type if layers and config == EMPTY else None,
        subject=subject,
        annotations=dict(sorted(annotations.items())),
    )
    return Layer(media_type=MANIFEST_TYPE, data=encoded(manifest, Manifest))


def _index_of(manifest: Layer, about: Sequence[tuple[str, Layer]], *, version: str) -> bytes:
    """Return the ``index.json`` that names a manifest by its version, and the manifests about it by their kind."""
    named = Layer(media_type=MANIFEST_TYPE, data=manifest.data, annotations={REFERENCE_NAME: version})
    others = [msgspec.structs.replace(Descriptor.of(layer), artifact_type=kind) for kind, layer in about]
    index = Index(schema_version=2, media_type=INDEX_TYPE, manifests=[Descriptor.of(named), *others])
    return encoded(index, Index)

"""Immutable versions of modules and other artifacts.

``FilesystemRegistry(url)`` stores modules; ``OciLayoutStore(url)`` stores any kind of artifact the same way.
"""

from wasmline.digests import digest_of
from wasmline.registry.artifact_store import Artifact, OciLayoutStore
from wasmline.registry.creation_time import created_now
from wasmline.registry.modules import (
    FilesystemRegistry,
    Registry,
    Version,
    parse_reference,
)
from wasmline.registry.oci_annotations import ArtifactMetadata
from wasmline.registry.oci_manifest import Descriptor, Layer
from wasmline.registry.semver import Semver

__all__ = [
    "Artifact",
    "ArtifactMetadata",
    "Descriptor",
    "FilesystemRegistry",
    "Layer",
    "OciLayoutStore",
    "Registry",
    "Semver",
    "Version",
    "created_now",
    "digest_of",
    "parse_reference",
]

"""The annotations of a module's manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wasmline.registry.declaration import differing_keys, parse_declaration
from wasmline.registry.oci_manifest import decoded, encoded

TRANSFORM_ANNOTATION = "wasmline.transform"

_OCI = "org.opencontainers.image."
TITLE = f"{_OCI}title"
VERSION = f"{_OCI}version"

_COMPARED = ("description", "licenses", "source")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that no annotation may contain; a description may have line breaks and tabs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactMetadata:
    """Metadata of a module.

    ``transform`` is its project's declaration (topics, env, limits) as JSON-able data, the defaults of a deployment;
    ``revision`` the source's git commit; ``created`` RFC 3339, None for now.
    """

    description: str = ""
    revision: str | None = None
    source: str | None = None
    licenses: str | None = None
    created: str | None = None
    transform: Mapping[str, Any] = field(default_factory=dict)

    def differing(self, other: ArtifactMetadata) -> list[str]:
        """Return the fields that differ from ``other``, except ``created`` and ``revision``."""
        texts = [key for key in _COMPARED if getattr(self, key) != getattr(other, key)]
        return texts + differing_keys(self.transform, other.transform)


def parse_metadata(annotations: Mapping[str, str]) -> ArtifactMetadata:
    """Return the metadata in a manifest's annotations. Raises ValueError if they are malformed."""
    for key, text in annotations.items():
        if control := _CONTROL.search(key + text):
            raise ValueError(f"the annotation {key[:100]!r} contains the control character U+{ord(control[0]):04X}")
    try:
        transform = parse_declaration(annotations.get(TRANSFORM_ANNOTATION, "{}"))
    except ValueError as error:
        raise ValueError(f"the annotation {TRANSFORM_ANNOTATION!r}: {error}") from error
    return ArtifactMetadata(
        description=annotations.get(f"{_OCI}description", ""),
        revision=annotations.get(f"{_OCI}revision"),
        source=annotations.get(f"{_OCI}source"),
        licenses=annotations.get(f"{_OCI}licenses"),
        created=annotations.get(f"{_OCI}created"),
        transform=transform,
    )


def annotations_of(name: str, version: str, metadata: ArtifactMetadata) -> dict[str, str]:
    """Return the annotations of a module's manifest. Raises ValueError for values that are not JSON, or not text."""
    texts = {f"{_OCI}{key}": getattr(metadata, key) for key in (*_COMPARED, "revision", "created")}
    annotations = {key: text for key, text in texts.items() if text} | {TITLE: name, VERSION: version}
    if metadata.transform:
        annotations[TRANSFORM_ANNOTATION] = encoded(dict(metadata.transform), dict[str, Any]).decode()
    return decoded(encoded(annotations, dict[str, str]), dict[str, str])

"""Documents of models and decisions in a registry: input from its writers, decoded strictly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from wasmline.errors import UnsupportedSpecVersion

T = TypeVar("T")

_MAX_SPEC_VERSION = 999


def stored_document(kind: type[T], document: Mapping[str, Any], place: str, *, newest: int = 1) -> T:
    """Return the ``kind`` encoded in a JSON object; ``newest`` is the highest spec version of it.

    Raises ValueError if it is malformed, and UnsupportedSpecVersion, with its ``place``, if a later release wrote it.
    """
    if (version := document.get("spec_version", 1)) in range(newest + 1, _MAX_SPEC_VERSION + 1):
        raise UnsupportedSpecVersion(
            f"{place} is a {kind.__name__} of spec version {version}, and this release reads {newest}: use a later "
            "release"
        )
    return msgspec.convert(document, kind)

"""The declaration of a transform as it is kept with each version: the defaults of a deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wasmline.registry.layout import decoded

MAX_OUTPUT_TOPICS = 8

Topic = Annotated[str, Meta(pattern=r"\A(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")]
"""The name of a Kafka topic."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Declaration(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The keys that are read, and their types; others are kept and ignored. Any may be absent."""

    input_topic: Topic | UnsetType = UNSET
    output_topics: Annotated[list[Topic], Meta(min_length=1, max_length=MAX_OUTPUT_TOPICS)] | UnsetType = UNSET
    dead_letter_topic: Topic | None = None
    env: dict[str, str] | UnsetType = UNSET
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | UnsetType = UNSET
    language: Annotated[str, Meta(pattern=r"\A[a-z0-9-]{1,64}\Z")] | UnsetType = UNSET
    memory_bytes: Annotated[int, Meta(ge=1, le=2**32)] | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=1, le=2**32)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        for key, value in (self.env or {}).items():
            if _CONTROL.search(key) or _CONTROL.search(value):
                raise ValueError(f"the variable {key[:128]!r} holds a control character")


def parse_declaration(text: str) -> dict[str, Any]:
    """Return a declaration as JSON-able data. Raises ValueError where a key of Declaration has another type."""
    decoded(text.encode(), Declaration)
    return decoded(text.encode(), dict[str, Any])


def differing_keys(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys under which two mappings differ; an absent one equals None."""
    return sorted(key for key in mine.keys() | other.keys() if mine.get(key) != other.get(key))

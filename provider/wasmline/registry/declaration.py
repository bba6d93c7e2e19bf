"""The declaration of a transform, stored with each version: the defaults of a deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wasmline.model_reference import ModelReference
from wasmline.registry.oci_manifest import decoded
from wasmline.transform_limits import (
    MAX_CPU_MS_PER_RECORD,
    MAX_MEMORY_BYTES,
    MAX_OUTPUT_TOPICS,
    MAX_VARIABLE_BYTES,
    MAX_VARIABLE_NAME_BYTES,
    MAX_VARIABLES,
    MIN_MEMORY_BYTES,
    RESERVED,
)

Topic = Annotated[str, Meta(pattern=r"\A(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")]
"""The name of a Kafka topic."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Declaration(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The known keys, with the types and bounds of a deployment; other keys are stored and ignored.

    Any may be absent.
    """

    input_topic: Topic | UnsetType = UNSET
    output_topics: Annotated[list[Topic], Meta(min_length=1, max_length=MAX_OUTPUT_TOPICS)] | UnsetType = UNSET
    dead_letter_topic: Topic | None = None
    env: Annotated[dict[str, str], Meta(max_length=MAX_VARIABLES)] | UnsetType = UNSET
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | UnsetType = UNSET
    language: Annotated[str, Meta(pattern=r"\A[a-z0-9-]{1,64}\Z")] | UnsetType = UNSET
    model: ModelReference | None = None
    memory_bytes: Annotated[int, Meta(ge=MIN_MEMORY_BYTES, le=MAX_MEMORY_BYTES)] | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_CPU_MS_PER_RECORD)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        outputs = self.output_topics or []
        if len(set(outputs)) < len(outputs):
            raise ValueError("an output topic is named twice")
        if self.input_topic in (*outputs, self.dead_letter_topic):
            raise ValueError(f"{self.input_topic} is both input and output")
        for name, value in (self.env or {}).items():
            _check_variable(name, value)


def _check_variable(name: str, value: str) -> None:
    shown = f"the variable {name[:MAX_VARIABLE_NAME_BYTES]!r}"
    if _CONTROL.search(name + value):
        raise ValueError(f"{shown} contains a control character")
    if "=" in name or name.startswith(RESERVED):
        raise ValueError(f"{shown} is not a valid name: no '=', and {RESERVED} is reserved")
    if not (0 < len(name.encode()) <= MAX_VARIABLE_NAME_BYTES and 0 < len(value.encode()) <= MAX_VARIABLE_BYTES):
        raise ValueError(
            f"{shown}: a name has 1 to {MAX_VARIABLE_NAME_BYTES} bytes, and a value 1 to {MAX_VARIABLE_BYTES}"
        )


def parse_declaration(text: str) -> dict[str, Any]:
    """Return a declaration as JSON-able data. Raises ValueError if a key of Declaration has another type."""
    decoded(text.encode(), Declaration)
    return decoded(text.encode(), dict[str, Any])


def differing_keys(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ in two mappings; an absent one equals None."""
    return sorted(key for key in mine.keys() | other.keys() if mine.get(key) != other.get(key))

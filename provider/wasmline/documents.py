"""Versioned JSON documents of orchestrators, jobs and topics: frozen dataclasses, decoded strictly."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from wasmline.errors import UnsupportedSpecVersion, WasmlineError

T = TypeVar("T")


def encode(document: Any) -> bytes:
    """Return a dataclass as UTF-8 JSON with its fields in order: equal documents give equal bytes."""
    return msgspec.json.encode(msgspec.to_builtins(document, str_keys=True, order="deterministic"))


def decode(kind: type[T], data: bytes | str) -> T:
    """Return the ``kind`` encoded in ``data``.

    Fields that a newer minor release added are ignored; a missing or mistyped field, a value that ``kind`` refuses,
    another ``spec_version`` and bytes that are not JSON raise UnsupportedSpecVersion with the path to it.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WasmlineError) as error:
        raise UnsupportedSpecVersion(f"not a {kind.__name__} this release can read: {error}") from error


def decode_strictly(kind: type[T], data: bytes, limit_bytes: int) -> T:
    """Return the ``kind`` encoded in untrusted JSON.

    Raises ValueError for anything else: more than ``limit_bytes``, other types, bytes that are not UTF-8, a repeated
    key in an object, too deep nesting.
    """
    if len(data) > limit_bytes:
        raise ValueError(f"it takes more than {limit_bytes} bytes")
    try:
        json.loads(data.decode(), object_pairs_hook=_require_unique)
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def plain(document: Any) -> Any:
    """Return a document as JSON-able dicts and lists, for XCom and reports."""
    return _with_lists(msgspec.to_builtins(document))


def _with_lists(value: Any) -> Any:
    """Return a value whose tuples are lists: JSON has no tuples, and Airflow's XCom would name their class."""
    if isinstance(value, dict):
        return {key: _with_lists(each) for key, each in value.items()}
    return [_with_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _require_unique(pairs: list[tuple[str, Any]]) -> None:
    """Reject an object with a repeated key, as another reader may use the other value."""
    known: set[str] = set()
    for key, _ in pairs:
        if key in known:
            raise ValueError(f"the key {key[:100]!r} is repeated")
        known.add(key)

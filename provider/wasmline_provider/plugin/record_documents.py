"""The documents of the page about records: dead letters, and where a record comes from."""

from __future__ import annotations

import base64
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wasmline.documents import plain

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig
    from wasmline.lineage import ExplainedRecord
    from wasmline.redrive import StoredDeadLetter
    from wasmline_provider.hooks.wasmline import Locations

MAX_PAYLOAD_BYTES = 2_000
"""Bytes of a key, a value or a header that are shown."""

MAX_HEADERS = 50

MAX_LETTERS = 100
"""Dead letters that are shown, the newest of a topic."""


def payload(data: bytes | None) -> dict[str, Any] | None:
    """Return bytes as text, or as base64 if they are no UTF-8; cut to MAX_PAYLOAD_BYTES."""
    if data is None:
        return None
    shown = data[:MAX_PAYLOAD_BYTES]
    text = _text(shown, is_cut=len(shown) < len(data))
    return {
        "text": text,
        "base64": base64.b64encode(shown).decode() if text is None else None,
        "bytes": len(data),
        "cut": len(shown) < len(data),
    }


def read_dead_letters(config: KafkaConfig, topic: str, *, shows_payloads: bool) -> list[dict[str, Any]]:
    """Return the newest dead letters of a topic, newest first. Raises TopicNotFound, BrokerUnavailable."""
    from wasmline.redrive import newest_dead_letters

    found = newest_dead_letters(config, topic, MAX_LETTERS)
    return [_dead_letter(each, shows_payloads=shows_payloads) for each in found]


def read_provenance(
    config: KafkaConfig,
    at: Locations,
    position: tuple[str, int, int],
    *,
    topics: Collection[str],
    shows_payloads: bool,
) -> dict[str, Any]:
    """Return a record, and the records that it comes from as far as they are in ``topics``.

    Raises TopicNotFound, RecordNotFound, BrokerUnavailable.
    """
    from wasmline.kafka import read_record
    from wasmline.lineage import RecordPosition, explain
    from wasmline.registry import FilesystemRegistry
    from wasmline.training import ModelRegistry

    topic, partition, offset = position
    with at.opened():
        records = explain(
            config,
            RecordPosition(topic=topic, partition=partition, offset=offset),
            registry=FilesystemRegistry(at.registry),
            models=ModelRegistry(at.models),
            topics=topics,
        )
    shown = payload if shows_payloads else _hidden
    message = read_record(config, topic, partition, offset)
    return {**_chain(records), "key": shown(message.key()), "value": shown(message.value())}


def _dead_letter(letter: StoredDeadLetter, *, shows_payloads: bool) -> dict[str, Any]:
    failure = letter.failure
    shown = payload if shows_payloads else _hidden
    return {
        "partition": letter.topic_partition.partition,
        "offset": letter.offset,
        "time_ms": letter.timestamp,
        "error": failure.error,
        "reason": failure.reason,
        "transform": failure.transform_reference or None,
        "module": failure.digest or None,
        "source": failure.position or None,
        "key": shown(letter.key),
        "value": shown(letter.value),
        "headers": [[name, shown(value)] for name, value in (letter.headers or [])[:MAX_HEADERS]],
        "truncated_bytes": failure.truncated_bytes,
    }


def _chain(records: list[ExplainedRecord]) -> dict[str, Any]:
    document: dict[str, Any] | None = None
    for each in reversed(records):
        document = {
            "position": str(each.position),
            "timestamp_ms": each.timestamp_ms,
            "error": each.error,
            "reason": each.reason,
            "module": None if each.module is None else plain(each.module),
            "model": None if each.model is None else plain(each.model),
            "problems": list(each.problems),
            "source": document,
        }
    assert document is not None
    return document


def _hidden(data: bytes | None) -> None:
    return None


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 as text, None for other bytes; one that is cut may end within a letter."""
    for dropped in range(4 if is_cut else 1):
        with suppress(UnicodeDecodeError):
            return data[: len(data) - dropped].decode()
    return None

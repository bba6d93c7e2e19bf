"""The documents of the page about records: dead letters, and where a record comes from."""

from __future__ import annotations

import base64
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from wasmline.documents import plain
from wasmline.printable import bounded_line

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig
    from wasmline.lineage import ExplainedRecord, ModelOrigin
    from wasmline.redrive import NewestDeadLetters, StoredDeadLetter
    from wasmline_provider.hooks.wasmline import Locations

MAX_PAYLOAD_BYTES = 2_000
"""Bytes of a key or a value that are shown."""

MAX_HEADER_BYTES = 200
MAX_HEADERS = 20

MAX_LETTERS = 50
"""Dead letters that are shown, the newest of a topic."""


def payload(data: bytes | None, limit: int = MAX_PAYLOAD_BYTES) -> dict[str, Any] | None:
    """Return bytes as text, or as base64 if they are no UTF-8; cut to ``limit`` bytes."""
    if data is None:
        return None
    shown = data[:limit]
    text = _text(shown, is_cut=len(shown) < len(data))
    return {
        "text": text,
        "base64": base64.b64encode(shown).decode() if text is None else None,
        "bytes": len(data),
        "cut": len(shown) < len(data),
    }


def newest_dead_letters(config: KafkaConfig, topic: str, *, shows_payloads: bool) -> NewestDeadLetters[dict[str, Any]]:
    """Return the reader of the newest dead letters of a topic, as documents."""
    from wasmline.redrive import NewestDeadLetters

    return NewestDeadLetters(config, topic, MAX_LETTERS, partial(_dead_letter, shows_payloads=shows_payloads))


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
        "error": failure.error and bounded_line(failure.error),
        "reason": failure.reason and bounded_line(failure.reason),
        "transform": failure.transform_reference or None,
        "module": failure.digest or None,
        "source": failure.position or None,
        "key": shown(letter.key),
        "value": shown(letter.value),
        "headers": _headers(letter) if shows_payloads else [],
        "truncated_bytes": failure.truncated_bytes,
    }


def _headers(letter: StoredDeadLetter) -> list[list[Any]]:
    shown = (letter.headers or [])[:MAX_HEADERS]
    return [[name[:MAX_HEADER_BYTES], payload(value, MAX_HEADER_BYTES)] for name, value in shown]


def _chain(records: list[ExplainedRecord]) -> dict[str, Any]:
    document: dict[str, Any] | None = None
    for each in reversed(records):
        document = {
            "position": str(each.position),
            "timestamp_ms": each.timestamp_ms,
            "error": each.error,
            "reason": each.reason,
            "module": None if each.module is None else plain(each.module),
            "model": None if each.model is None else _model(each.model),
            "problems": list(each.problems),
            "source": document,
        }
    assert document is not None
    return document


def _model(model: ModelOrigin) -> dict[str, Any]:
    names = ("name", "version", "digest", "topic", "training_rows")
    shown = {name: getattr(model, name) for name in names}
    return {**shown, "rmse": model.metrics and model.metrics.rmse, "problems": list(model.problems)}


def _hidden(data: bytes | None) -> None:
    return None


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 as text, None for other bytes; one that is cut may end within a letter."""
    for dropped in range(4 if is_cut else 1):
        with suppress(UnicodeDecodeError):
            return data[: len(data) - dropped].decode()
    return None

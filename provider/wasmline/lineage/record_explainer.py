"""Follows a record to its source, and that one to its own, down to a record that no transform wrote."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import cast

from wasmline.errors import KafkaError, OffsetOutOfRange
from wasmline.kafka import KafkaConfig, read_record
from wasmline.lineage.explanation import ExplainedRecord, RecordPosition
from wasmline.lineage.model_lookup import model_origin
from wasmline.lineage.module_lookup import module_origin
from wasmline.lineage.record_headers import Header, origin_of
from wasmline.registry import FilesystemRegistry
from wasmline.training import ModelRegistry

MAX_RECORDS = 16
"""Records that are followed: headers are the input of other writers, and may lead anywhere."""


def explain(
    config: KafkaConfig,
    position: RecordPosition,
    *,
    registry: FilesystemRegistry,
    models: ModelRegistry,
    topics: Collection[str] | None = None,
) -> list[ExplainedRecord]:
    """Return a record and the records that it comes from, each the source of the one before.

    topics: follow only to records of these; None for any, as headers name any topic.

    Raises TopicNotFound, RecordNotFound and BrokerUnavailable for the record itself. What else is missing is one of
    the ``problems``.
    """
    records = [_explained(config, position, registry, models)]
    while (source := records[-1].source) is not None:
        if any(source == each.position for each in records) or len(records) == MAX_RECORDS:
            text = f"its source {source} is not followed: " + (
                f"{MAX_RECORDS} records were" if len(records) == MAX_RECORDS else "it comes from this record"
            )
            return [*records[:-1], _with_problem(records[-1], text)]
        if topics is not None and source.topic not in topics:
            text = f"its source {source} is not followed: no transform or job on record reads or writes its topic"
            return [*records[:-1], _with_problem(records[-1], text)]
        try:
            records.append(_explained(config, source, registry, models))
        except (KafkaError, OffsetOutOfRange) as error:
            if error.retryable:
                raise
            return [*records[:-1], _with_problem(records[-1], f"its source cannot be read: {error}")]
    return records


def _explained(
    config: KafkaConfig, position: RecordPosition, registry: FilesystemRegistry, models: ModelRegistry
) -> ExplainedRecord:
    message = read_record(config, position.topic, position.partition, position.offset)
    origin = origin_of(cast("list[Header]", message.headers() or []))
    return ExplainedRecord(
        position=position,
        timestamp_ms=message.timestamp()[1],
        source=origin.source,
        module=module_origin(registry, *origin.transform, origin.digest) if origin.transform else None,
        model=model_origin(models, origin.model) if origin.model else None,
        error=origin.error,
        reason=origin.reason,
        problems=(origin.problem,) if origin.problem else (),
    )


def _with_problem(record: ExplainedRecord, problem: str) -> ExplainedRecord:
    return replace(record, problems=(*record.problems, problem))

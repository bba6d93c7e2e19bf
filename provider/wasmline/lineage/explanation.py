"""The explanation of a record: its source, its module and its model."""

from __future__ import annotations

from dataclasses import dataclass

from wasmline.offset_ranges import OffsetRanges
from wasmline.topic_partitions import TopicPartition
from wasmline.training import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPosition:
    """The place of a record in a topic."""

    topic: str
    partition: int
    offset: int

    @property
    def source(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.source}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleOrigin:
    """The module of a transform.

    ``recorded_digest`` is what the record names, or its first digits; ``digest`` that of the registry. What the
    registry does not tell is None or empty, and ``problems`` says why.
    """

    name: str
    version: str
    recorded_digest: str
    digest: str | None = None
    language: str | None = None
    toolchain: str | None = None
    commit: str | None = None
    sources: tuple[str, ...] = ()
    source_digest: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOrigin:
    """The model of a prediction; ``offsets`` are the half-open ranges of ``topic`` that it was trained on.

    ``recorded_digest`` and ``recorded_dataset`` are the first digits that the record names.
    """

    name: str
    version: str
    recorded_digest: str
    recorded_dataset: str
    digest: str | None = None
    dataset: str | None = None
    topic: str | None = None
    offsets: OffsetRanges | None = None
    training_rows: int | None = None
    metrics: Metrics | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRecord:
    """One record. ``source`` None: it was not made by a transform with provenance.

    ``error`` and ``reason`` are those of a dead letter.
    """

    position: RecordPosition
    timestamp_ms: int
    source: RecordPosition | None = None
    module: ModuleOrigin | None = None
    model: ModelOrigin | None = None
    error: str | None = None
    reason: str | None = None
    problems: tuple[str, ...] = ()

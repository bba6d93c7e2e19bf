"""Tells an explanation as text: a label and a sentence for each fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from wasmline.lineage.explanation import ExplainedRecord, ModelOrigin, ModuleOrigin
from wasmline.offset_ranges import ranges_of
from wasmline.printable import printable

LABEL_COLUMNS = 14

MAX_DATE_MS = 253_402_300_800_000
"""The beginning of the year 10000."""

Line = tuple[str, str]


def text_lines(records: Iterable[ExplainedRecord]) -> Iterator[str]:
    """Yield the lines that tell where records come from, without control characters."""
    for record in records:
        for label, text in _lines(record):
            yield f"{label:{LABEL_COLUMNS}}{printable(text)}"


def _lines(record: ExplainedRecord) -> Iterator[Line]:
    yield "record", f"{record.position}, {_time(record.timestamp_ms)}"
    if record.error is not None:
        yield "  failed", f"{record.error}: {record.reason or 'no reason'}"
    if record.module is not None:
        yield from _module(record.module)
    if record.model is not None:
        yield from _model(record.model)
    if record.source is not None:
        yield "  source", str(record.source)
    elif not record.problems:
        yield "  source", "none: it has no provenance"
    for problem in record.problems:
        yield "  problem", problem


def _time(ms: int) -> str:
    """Return a record's timestamp; one that is not in a year of four digits as the number it is."""
    if not 0 <= ms < MAX_DATE_MS:
        return f"timestamp {ms}"
    return f"{datetime.fromtimestamp(ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _module(module: ModuleOrigin) -> Iterator[Line]:
    yield "  transform", f"{module.name}@{module.version}, module {module.digest or module.recorded_digest}"
    if module.source_digest is not None:
        yield "  sources", f"{', '.join(module.sources)} ({module.source_digest})"
    if module.commit is not None:
        yield "  commit", module.commit
    if module.toolchain is not None:
        yield "  toolchain", f"{module.toolchain} ({module.language})"
    for problem in module.problems:
        yield "  problem", problem


def _model(model: ModelOrigin) -> Iterator[Line]:
    yield "  model", f"{model.name}@{model.version}, {model.digest or model.recorded_digest}"
    yield "  dataset", model.dataset or model.recorded_dataset
    if model.offsets is not None:
        ranges = (f"{model.topic}-{each}@[{begin}, {end})" for each, begin, end in ranges_of(model.offsets))
        yield "  trained on", f"{model.training_rows:,} rows of {', '.join(ranges)}"
    if model.metrics is not None:
        metrics = model.metrics
        yield "  metrics", f"RMSE {metrics.rmse:.3f}, of the mean {metrics.mean_rmse:.3f} ({metrics.rows:,} held out)"
    for problem in model.problems:
        yield "  problem", problem

"""``wasmline explain``: tells where a record comes from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from wasmline.cli.options import kafka_config, kafka_option, registry_option
from wasmline.printable import printable

if TYPE_CHECKING:
    from wasmline.lineage import ExplainedRecord, ModelOrigin, ModuleOrigin

LABEL_COLUMNS = 14

MAX_DATE_MS = 253_402_300_800_000
"""The beginning of the year 10000."""

Line = tuple[str, str]


@click.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0, max=2**31 - 1))
@click.argument("offset", type=click.IntRange(min=0, max=2**63 - 1))
@kafka_option
@registry_option
@click.option("--models", metavar="URL", help="The registry of models.  [default: the registry]")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
def explain(
    topic: str,
    partition: int,
    offset: int,
    settings: tuple[tuple[str, str], ...],
    registry: str,
    models: str | None,
    as_json: bool,
) -> None:
    """Tell where a record comes from: the module and the model that made it, and its sources.

    The record is an output with provenance, or a dead letter. Its source is explained too, down to a record that no
    transform wrote. Headers are compared with the registries; whatever differs or is missing is named.
    """
    from wasmline.documents import encode
    from wasmline.lineage import RecordPosition
    from wasmline.lineage import explain as explain_record
    from wasmline.registry import FilesystemRegistry
    from wasmline.training import ModelRegistry

    records = explain_record(
        kafka_config(settings),
        RecordPosition(topic=topic, partition=partition, offset=offset),
        registry=FilesystemRegistry(registry),
        models=ModelRegistry(models or registry),
    )
    if as_json:
        click.echo(printable(encode({"records": records}).decode()))
        return
    for record in records:
        for label, text in _lines(record):
            click.echo(f"{label:{LABEL_COLUMNS}}{printable(text)}")


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
        ranges = (f"{model.topic}-{each}@[{begin}, {end})" for each, (begin, end) in model.offsets.items())
        yield "  trained on", f"{model.training_rows:,} rows of {', '.join(ranges)}"
    if model.metrics is not None:
        metrics = model.metrics
        yield "  metrics", f"RMSE {metrics.rmse:.3f}, of the mean {metrics.mean_rmse:.3f} ({metrics.rows:,} held out)"
    for problem in model.problems:
        yield "  problem", problem

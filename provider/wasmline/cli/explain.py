"""``wasmline explain``: tells where a record comes from."""

from __future__ import annotations

import click

from wasmline.cli.options import kafka_config, kafka_option, models_option, record_arguments, registry_option
from wasmline.printable import printable


@click.command()
@record_arguments
@kafka_option
@registry_option
@models_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
def explain(
    topic: str,
    partition: int,
    offset: int,
    settings: tuple[tuple[str, str], ...],
    registry: str,
    models: str,
    as_json: bool,
) -> None:
    """Tell where a record comes from: the module and the model that made it, and its sources.

    The record is an output with provenance, or a dead letter. Its source is explained too, down to a record that no
    transform wrote. Headers are compared with the registries; whatever differs or is missing is named.
    """
    from wasmline.documents import encode
    from wasmline.lineage import RecordPosition, text_lines
    from wasmline.lineage import explain as explain_record
    from wasmline.registry import FilesystemRegistry
    from wasmline.training import ModelRegistry

    records = explain_record(
        kafka_config(settings),
        RecordPosition(topic=topic, partition=partition, offset=offset),
        registry=FilesystemRegistry(registry),
        models=ModelRegistry(models),
    )
    if as_json:
        click.echo(printable(encode({"records": records}).decode()))
        return
    for line in text_lines(records):
        click.echo(line)

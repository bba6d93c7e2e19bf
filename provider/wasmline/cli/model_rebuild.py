"""``wasmline models rebuild``: trains a version again, and compares the bytes."""

from __future__ import annotations

import json

import click

from wasmline.cli.options import json_option, kafka_config, kafka_option, models_option
from wasmline.errors import PrerequisiteMissing
from wasmline.printable import printable

EXIT_DIFFERS = 1
INSTALL = "pip install 'wasmline[spark,training]'"


@click.command()
@click.argument("reference", metavar="MODEL[@VERSION]")
@click.argument("version", required=False)
@models_option
@kafka_option
@click.option("--trust-condition", is_flag=True, help="Evaluate a recorded SQL condition that calls functions.")
@json_option
def rebuild(
    reference: str,
    version: str | None,
    models: str,
    settings: tuple[tuple[str, str], ...],
    trust_condition: bool,
    as_json: bool,
) -> None:
    """Train a version of a model again from the records of its dataset, and compare the bytes.

    The version is given as MODEL@VERSION or as MODEL VERSION.

    The records are read from the rows that were kept beside the model, and the others from the topic.
    Nothing is stored. Needs Spark and a Java runtime; ends with status 1 if the bytes are not the same.
    """
    from wasmline.documents import plain
    from wasmline.local import connector_jars
    from wasmline.registry import parse_reference
    from wasmline.training import ModelRegistry, rebuild_model

    model, named = parse_reference(reference)
    if bool(named) == bool(version):
        raise click.UsageError("name the version once: MODEL@VERSION, or MODEL VERSION")
    version = version or str(named)
    try:
        from wasmline.spark.session import local_session
    except ImportError as error:
        raise PrerequisiteMissing(f"a rebuild needs Spark: {INSTALL}", install=INSTALL) from error
    kafka = kafka_config(settings)
    ModelRegistry(models).get(model, version)  # an unknown version is told before Spark starts
    spark = local_session("wasmline models rebuild", connector_jars())
    found = rebuild_model(spark, kafka, models=models, name=model, version=version, trust_condition=trust_condition)
    if as_json:
        click.echo(json.dumps({**plain(found), "is_same": found.is_same}, indent=2))
    elif found.is_same:
        click.echo(f"{model}@{version}  {found.digest}  the same bytes again, from {found.training_rows:,} rows")
    else:
        why = found.difference or "the same number of rows, and the same libraries"
        text = f"{model}@{version} is {found.digest}, and its dataset gives {found.rebuilt_digest}: {why}"
        click.echo(printable(text))
    if not found.is_same:
        raise click.exceptions.Exit(EXIT_DIFFERS)

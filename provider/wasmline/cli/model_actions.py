"""``wasmline models compile | rollback``: make a model a transform, and return to an earlier version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wasmline.cli.confirmation import require_confirmed, user_name
from wasmline.cli.options import (
    json_option,
    kafka_config,
    kafka_option,
    models_option,
    registry_option,
    transform_option,
    yes_option,
)
from wasmline.printable import printable

if TYPE_CHECKING:
    from wasmline.training import RollbackPlan

TOPIC_OPTIONS = ("input-topic", "output-topic", "dead-letter-topic")


@click.command(name="compile")
@click.argument("reference", metavar="MODEL[@VERSION]")
@models_option
@registry_option
@transform_option
@click.option("-i", "--input-topic", help="The topic of the records to predict from.")
@click.option("--output-topic", help="The topic of the predictions.")
@click.option("--dead-letter-topic", help="The topic of the records without a prediction.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the module to a file; publish nothing.")
@json_option
def compile_(
    reference: str,
    models: str,
    registry: str,
    transform: str | None,
    input_topic: str | None,
    output_topic: str | None,
    dead_letter_topic: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Compile a version of a model (default: the champion), prove it, and publish it as a transform of that version.

    The topics are those that a deployment has by default. Options that are not given are those of the latest version
    of the transform.
    """
    from wasmline.documents import plain
    from wasmline.registry import parse_reference
    from wasmline.training import compile_proven, publish_model

    name, version = parse_reference(reference)
    version = version or _champion(models, name)
    if output:
        proven = compile_proven(models=models, model=name, version=version)
        output.write_bytes(proven.wasm)
        section = proven.section
        found = {"path": str(output), "size_bytes": len(proven.wasm), "model": plain(section.model)}
        _echo({**found, "proof": plain(section.proof)}, f"{output}  {len(proven.wasm):,} bytes  proven", as_json)
        return
    topics = _topics(registry, transform or name, (input_topic, output_topic, dead_letter_topic))
    published = publish_model(
        models=models,
        model=name,
        version=version,
        registry=registry,
        input_topic=topics[0],
        output_topic=topics[1],
        dead_letter_topic=topics[2],
        transform=transform,
    )
    how = "published" if published.is_new else "published before"
    text = f"{published}  {published.digest}  {published.size_bytes:,} bytes  proven, {how} in {registry}"
    _echo(plain(published), text, as_json)


@click.command()
@click.argument("model")
@models_option
@registry_option
@kafka_option
@click.option("--to", "version", metavar="VERSION", help="The version to return to.  [default: the champion before]")
@click.option("--reason", default="", help="Why; kept in the history. Required, but to complete a rollback.")
@yes_option
@json_option
def rollback(
    model: str,
    models: str,
    registry: str,
    settings: tuple[tuple[str, str], ...],
    version: str | None,
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Make an earlier version of a model the champion again, and deploy its module in place of the one that serves.

    The deployment keeps its topics, environment and limits. A rollback that was interrupted is completed by the same
    command.
    """
    from wasmline.documents import plain
    from wasmline.training import plan_rollback, roll_back

    kafka = kafka_config(settings)
    plan = plan_rollback(model, models=models, kafka=kafka, version=version)
    if plan.recorded and not plan.deployments:
        _echo({"promotion": plain(plan.recorded), "deployments": []}, f"{_done(plan)}: nothing is left to do", as_json)
        return
    if not plan.recorded and not reason.strip():
        raise click.UsageError("give --reason: it is kept in the history")
    for line in _plan_lines(plan):
        click.echo(printable(line), err=True)
    if not yes:
        require_confirmed("Roll back?")
    result = roll_back(plan, models=models, registry=registry, kafka=kafka, reason=reason, by=user_name())
    generations = ", ".join(f"{each.spec.name} generation {each.generation}" for each in result.deployments)
    document = {
        "promotion": plain(result.promotion),
        "deployments": [{"name": each.spec.name, "generation": each.generation} for each in result.deployments],
    }
    _echo(document, f"{_done(plan)}, decision {result.promotion.number}: {generations or 'deployed before'}", as_json)


def _champion(models: str, name: str) -> str:
    from wasmline.errors import VersionNotFound
    from wasmline.training import ModelRegistry, PromotionLog

    ModelRegistry(models).get(name)  # an unknown model is another error
    champion = PromotionLog(models).champion(name)
    if champion is None:
        raise VersionNotFound(f"{name} has no champion in {models}: write {name}@VERSION", name=name, version=None)
    return champion


def _topics(registry: str, transform: str, given: tuple[str | None, ...]) -> list[str]:
    """Return the topics, those that are not given from the latest version of the transform."""
    from wasmline.registry import FilesystemRegistry

    published = FilesystemRegistry(registry)
    declared: tuple[str | None, ...] = (None, None, None)
    if None in given and published.versions(transform):
        keys = published.latest(transform).metadata.transform
        outputs = keys.get("output-topics") or [None]
        declared = (keys.get("input-topic"), outputs[0], keys.get("dead-letter-topic"))
    topics = [mine or theirs for mine, theirs in zip(given, declared, strict=True)]
    missing = [f"--{name}" for name, topic in zip(TOPIC_OPTIONS, topics, strict=True) if not topic]
    if missing:
        raise click.UsageError(f"no version of {transform} is published that has the topics: give {', '.join(missing)}")
    return [str(topic) for topic in topics]


def _plan_lines(plan: RollbackPlan) -> list[str]:
    steps = []
    if plan.recorded:
        steps.append(f"{_done(plan)} by decision {plan.recorded.number}; what is left:")
    else:
        steps.append(f"model {plan.model}: the champion {plan.champion} is replaced by {plan.version}")
    for each in plan.deployments:
        topics = f"{each.spec.input_topic} → {', '.join(each.spec.output_topics)}"
        running = each.spec.model.version if each.spec.model else "no model"
        steps.append(
            f"deployment {each.spec.name}, generation {each.generation}, {topics}: {running} is replaced by "
            f"{plan.version}"
        )
    if not plan.deployments:
        steps.append(f"the deployment runs {plan.version} already")
    return steps


def _done(plan: RollbackPlan) -> str:
    return f"model {plan.model} is rolled back from {plan.champion} to {plan.version}"


def _echo(document: dict[str, Any], text: str, as_json: bool) -> None:
    click.echo(json.dumps(document, indent=2) if as_json else printable(text))

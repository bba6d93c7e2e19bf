"""``wasmline models list | show | history | compare``: versions of models, decisions on them, and what serves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from wasmline.cli.model_actions import compile_, rollback
from wasmline.cli.model_rebuild import rebuild
from wasmline.cli.model_slices import slices
from wasmline.cli.options import (
    json_option,
    kafka_config,
    kafka_is_configured,
    kafka_option,
    models_option,
    registry_option,
    transform_option,
)
from wasmline.printable import printable

if TYPE_CHECKING:
    from wasmline.control import Deployment
    from wasmline.training import ModelOverview, ModelServing, ModelVersion

EXIT_NOT_SERVING = 3

check_option = click.option("--check", is_flag=True, help="End with status 3 unless each champion serves.")


@click.group()
def models() -> None:
    """List, compare, compile, rebuild and roll back models.

    SERVING says whether a model's champion is what the stream runs: it needs a cluster.
    """


models.add_command(compile_)
models.add_command(rebuild)
models.add_command(rollback)
models.add_command(slices)


@models.command(name="list")
@models_option
@registry_option
@kafka_option
@json_option
@check_option
def list_(models: str, registry: str, settings: tuple[tuple[str, str], ...], as_json: bool, check: bool) -> None:
    """List the models with their champions, and whether these serve. A registry without models fails the check."""
    from wasmline.cli.model_texts import list_text
    from wasmline.training import ModelReader

    deployments = _deployments(settings, needed=check)
    listed = [_listed(each) for each in ModelReader(models, registry).read(deployments)]
    click.echo(json.dumps(listed, indent=2) if as_json else list_text(listed))
    if not listed:
        click.echo(f"there are no models in {printable(models)}", err=True)
    _check(check, listed)


@models.command()
@click.argument("reference", metavar="MODEL[@VERSION]")
@models_option
@registry_option
@kafka_option
@transform_option
@json_option
@check_option
def show(
    reference: str,
    models: str,
    registry: str,
    settings: tuple[tuple[str, str], ...],
    transform: str | None,
    as_json: bool,
    check: bool,
) -> None:
    """Show a version of a model (default: the champion, else the latest), its module, and what serves."""
    from wasmline.cli.model_texts import show_text
    from wasmline.documents import plain
    from wasmline.registry import parse_reference
    from wasmline.training import ModelReader, ModelRegistry, PromotionLog

    name, version = parse_reference(reference)
    deployments = _deployments(settings, needed=check)
    log = PromotionLog(models)
    champion = log.champion(name)
    stored = ModelRegistry(models).get(name, version or champion)
    decisions = [each for each in log.history(name) if each.version == stored.version]
    shown = {
        **plain(stored),
        "champion": champion,
        "module": _module(stored, registry, transform or name),
        "serving": None
        if deployments is None
        else _serving(ModelReader(models, registry).serving(name, deployments, transform=transform)),
    }
    text = (
        json.dumps({**shown, "decisions": plain(decisions)}, indent=2)
        if as_json
        else show_text(stored, shown, decisions)
    )
    click.echo(text)
    _check(check, [shown])


@models.command()
@click.argument("model")
@models_option
@json_option
def history(model: str, models: str, as_json: bool) -> None:
    """Show every decision on a model, the oldest first.

    BEFORE is the champion before the decision. The RMSE of both are those on the same rows, except for a rollback.
    JOB RUN is the run of the training; `models slices` has the DAG runs.
    """
    from wasmline.cli.model_texts import history_text
    from wasmline.documents import plain
    from wasmline.training import ModelRegistry, PromotionLog

    ModelRegistry(models).get(model)  # an unknown model is an error
    decisions = PromotionLog(models).history(model)
    click.echo(json.dumps(plain(decisions), indent=2) if as_json else history_text(decisions))


@models.command()
@click.argument("model")
@click.argument("first", metavar="VERSION")
@click.argument("second", metavar="VERSION")
@models_option
@json_option
def compare(model: str, first: str, second: str, models: str, as_json: bool) -> None:
    """Compare the metrics of two versions, and how their trainings differed."""
    from wasmline.cli.model_texts import comparison_text
    from wasmline.documents import plain
    from wasmline.training import ModelRegistry, PromotionLog, compare_versions

    known = ModelRegistry(models)
    compared = compare_versions(known.get(model, first), known.get(model, second), PromotionLog(models).history(model))
    click.echo(json.dumps(plain(compared), indent=2) if as_json else comparison_text(compared))


def _deployments(settings: tuple[tuple[str, str], ...], needed: bool) -> list[Deployment] | None:
    """Return the deployments of the cluster; None if none is named and they are not needed."""
    if not needed and not settings and not kafka_is_configured():
        return None
    from wasmline.control import read_deployments

    return read_deployments(kafka_config(settings))


def _listed(model: ModelOverview) -> dict[str, Any]:
    """Return one model of the list, as JSON-able data; what cannot be read of it is its state of serving."""
    serving = None if model.serving is None else _serving(model.serving)
    if model.problem:
        serving = {"state": "unreadable", "agrees": False, "explanation": model.problem}
    return {
        "model": model.model,
        "champion": model.champion,
        "versions": list(model.versions),
        "rmse": model.rmse,
        "serving": serving,
    }


def _serving(serving: ModelServing) -> dict[str, Any]:
    """Return how a model is served, as JSON-able data."""
    from wasmline.documents import plain

    return {
        "state": serving.state,
        "agrees": serving.agrees,
        "explanation": serving.explanation,
        "deployments": [
            {
                "name": each.spec.name,
                "generation": each.generation,
                "state": each.state,
                "digest": each.spec.digest,
                "model": plain(each.spec.model),
            }
            for each in serving.facts.deployments
        ],
    }


def _module(stored: ModelVersion, registry: str, transform: str) -> dict[str, Any] | None:
    """Return the published module of a model version and its proof, as JSON-able data."""
    from wasmline.documents import plain
    from wasmline.registry import FilesystemRegistry
    from wasmline.training import model_reference, published_module
    from wasmline.wasm.model_section import model_of

    modules = FilesystemRegistry(registry)
    module = published_module(modules, transform, model_reference(stored))
    if module is None:
        return None
    found = model_of(modules.read(module.name, module.version))
    proof = plain(found.section.proof) if found and found.proven else None
    return {"name": module.name, "version": module.version, "digest": module.digest, "proof": proof}


def _check(wanted: bool, shown: list[dict[str, Any]]) -> None:
    if wanted and not (shown and all(each["serving"]["agrees"] for each in shown)):
        raise click.exceptions.Exit(EXIT_NOT_SERVING)

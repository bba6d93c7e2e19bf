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
    from wasmline.training import ModelVersion

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
    from wasmline.training import ModelRegistry

    deployments = _deployments(settings, needed=check)
    listed = [_listed(name, models, registry, deployments) for name in ModelRegistry(models).names()]
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
    from wasmline.training import ModelRegistry, PromotionLog

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
        "serving": _serving(name, models, registry, deployments, transform),
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


def _listed(name: str, models: str, registry: str, deployments: list[Deployment] | None) -> dict[str, Any]:
    """Return one model of the list; what cannot be read of it is its state of serving."""
    from wasmline.errors import RegistryError, TrainingError, UnsupportedSpecVersion
    from wasmline.training import ModelRegistry, PromotionLog

    listed: dict[str, Any] = {"model": name, "champion": None, "versions": [], "rmse": None}
    known = ModelRegistry(models)
    try:
        listed["versions"] = known.versions(name)
        listed["champion"] = champion = PromotionLog(models).champion(name)
        listed["rmse"] = known.get(name, champion).record.metrics.rmse
        listed["serving"] = _serving(name, models, registry, deployments)
    except (RegistryError, TrainingError, UnsupportedSpecVersion) as error:
        listed["serving"] = {"state": "unreadable", "agrees": False, "explanation": str(error)}
    return listed


def _serving(
    name: str, models: str, registry: str, deployments: list[Deployment] | None, transform: str | None = None
) -> dict[str, Any] | None:
    """Return how a model is served, as JSON-able data; None without a cluster."""
    from wasmline.documents import plain
    from wasmline.training import model_serving

    if deployments is None:
        return None
    serving = model_serving(name, models=models, registry=registry, deployments=deployments, transform=transform)
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

    module = published_module(registry, transform, model_reference(stored))
    if module is None:
        return None
    found = model_of(FilesystemRegistry(registry).read(module.name, module.version))
    proof = plain(found.section.proof) if found and found.proven else None
    return {"name": module.name, "version": module.version, "digest": module.digest, "proof": proof}


def _check(wanted: bool, shown: list[dict[str, Any]]) -> None:
    if wanted and not (shown and all(each["serving"]["agrees"] for each in shown)):
        raise click.exceptions.Exit(EXIT_NOT_SERVING)

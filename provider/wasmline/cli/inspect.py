"""``wasmline inspect``: describes a module without running it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from wasmline.cli.options import registry_option
from wasmline.cli.runnable import RunnableTransform, resolve_transform
from wasmline.documents import plain
from wasmline.errors import InvalidModel
from wasmline.printable import printable
from wasmline.wasm.inspection import Compatibility, ImportOrExport, Inspection, MemorySize
from wasmline.wasm.inspection import inspect as inspect_module
from wasmline.wasm.model_section import ModelInModule, ModelInput, model_of

LABEL_COLUMNS = 15
Model = ModelInModule | InvalidModel | None
"""The model of a module, or what is wrong with its description."""

MAX_CATEGORIES = 10
"""Maximum categories of a text that the table shows."""


@click.command()
@click.argument("transform", metavar="MODULE|FOLDER|NAME@VERSION")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@registry_option
def inspect(transform: str, as_json: bool, registry: str) -> None:
    """Describe a module: its ABI, memory, imports and exports, limits, model, and the hosts that would run it.

    The module is not run. Compatibility with a broker is checked by Redpanda's default settings, without a broker.
    """
    trial = resolve_transform(transform, registry)
    found = inspect_module(trial.wasm, trial.limits)
    model = _model_of(trial.wasm)
    if as_json:
        click.echo(json.dumps(_document(trial, found, model), indent=2))
        return
    for label, lines in _table(trial, found, model):
        for line in lines:
            click.echo(f"{label:{LABEL_COLUMNS}}{printable(line)}")
            label = ""


def _model_of(wasm: bytes) -> Model:
    try:
        return model_of(wasm)
    except InvalidModel as error:
        return error


def _document(trial: RunnableTransform, found: Inspection, model: Model) -> dict[str, Any]:
    """Return the inspection, with the name and the limits, which are null if not declared, and the model."""
    limits = {"memory_bytes": trial.limits.memory_bytes, "timeout_ms": trial.limits.cpu_ms_per_record}
    described = {"error": str(model)} if isinstance(model, InvalidModel) else plain(model)
    return {
        "name": trial.context.name,
        **plain(found),
        "limits": limits if trial.declared else None,
        "model": described,
    }


def _table(trial: RunnableTransform, found: Inspection, model: Model) -> Iterator[tuple[str, Iterable[str]]]:
    """Return labels with their lines."""
    yield "name", [trial.context.name]
    yield "digest", [found.digest]
    yield "size", [f"{found.size_bytes:,} bytes, {found.functions:,} functions"]
    yield "abi", ["none" if found.abi is None else str(found.abi)]
    yield "memory", ["none" if found.memory is None else _memory(found.memory)]
    yield "limits", [_limits(trial)]
    yield "start section", ["yes" if found.start_section else "no"]
    yield "imports", _items(found.imports)
    yield "exports", _items(found.exports)
    yield "wasmline", _verdict(found.wasmline)
    yield "redpanda", _verdict(found.redpanda)
    if isinstance(model, InvalidModel):
        yield "model", [str(model)]
    elif model is not None:
        yield from _model(model)


def _model(model: ModelInModule) -> Iterator[tuple[str, Iterable[str]]]:
    section = model.section
    yield "model", [f"{section.model}, {section.model.digest}"]
    yield "dataset", [section.model.dataset]
    yield "predicts", [_with_unit(section.target, section.unit)]
    yield "inputs", [_input(each) for each in section.inputs]
    metrics = section.holdout
    unit = f" {section.unit}" if section.unit else ""
    errors = f"RMSE {metrics.rmse:.4g}{unit}, mean predictor {metrics.mean_rmse:.4g}{unit}"
    yield "holdout", [f"{metrics.rows:,} rows: {errors}"]
    yield "proof", _proof(model)


def _proof(model: ModelInModule) -> list[str]:
    proof = model.section.proof
    kinds = {"held-out": proof.held_out, "boundary": proof.boundaries, "category": proof.categories}
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    lines = [f"{counts} and {proof.random:,} random rows predicted as XGBoost {proof.xgboost} does, to the bit"]
    if not model.proven:
        lines.append(f"of another module, {model.section.module}: this one was changed after its proof")
    return lines


def _input(its: ModelInput) -> str:
    text = f"{_with_unit(its.name, its.unit)}: {its.type}"
    if its.missing == "dead_letter":
        return f"{text}, without it a dead letter"
    if not its.categories:
        return text
    more = len(its.categories) - MAX_CATEGORIES
    listed = ", ".join(its.categories[:MAX_CATEGORIES])
    return f"{text}, {listed}" + (f" and {more:,} more" if more > 0 else "")


def _with_unit(name: str, unit: str) -> str:
    return f"{name} in {unit}" if unit else name


def _memory(memory: MemorySize) -> str:
    text = f"{memory.initial_pages:,} pages ({memory.initial_bytes:,} bytes)"
    if memory.maximum_pages is None:
        return f"{text}, no maximum"
    return f"{text}, at most {memory.maximum_pages:,} pages ({memory.maximum_bytes:,} bytes)"


def _limits(trial: RunnableTransform) -> str:
    if not trial.declared:
        return "none declared"
    return f"{trial.limits.memory_bytes:,} bytes of memory, {trial.limits.cpu_ms_per_record:,} ms per record"


def _items(items: tuple[ImportOrExport, ...]) -> list[str]:
    names = [f"{item.module}.{item.name}" if item.module is not None else item.name for item in items]
    width = max(map(len, names), default=0)
    return [f"{name:{width}}  {item.kind} {item.type}" for name, item in zip(names, items, strict=True)] or ["none"]


def _verdict(verdict: Compatibility) -> list[str]:
    return ["accepts it"] if verdict.accepted else ["refuses it", *(f"- {reason}" for reason in verdict.reasons)]

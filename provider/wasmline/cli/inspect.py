"""``wasmline inspect``: describes a module without running it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from wasmline.cli.options import registry_option
from wasmline.cli.runnable import RunnableTransform, resolve_transform
from wasmline.documents import plain
from wasmline.printable import printable
from wasmline.wasm.inspection import Compatibility, ImportOrExport, Inspection, MemorySize
from wasmline.wasm.inspection import inspect as inspect_module

LABEL_COLUMNS = 15


@click.command()
@click.argument("transform", metavar="MODULE|FOLDER|NAME@VERSION")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@registry_option
def inspect(transform: str, as_json: bool, registry: str) -> None:
    """Describe a module: its ABI, memory, imports and exports, its declared limits, and the hosts that would run it.

    The module is not run. Compatibility with a broker is checked by Redpanda's default settings, without a broker.
    """
    trial = resolve_transform(transform, registry)
    found = inspect_module(trial.wasm, trial.limits)
    if as_json:
        click.echo(json.dumps(_document(trial, found), indent=2))
        return
    for label, lines in _table(trial, found):
        for line in lines:
            click.echo(f"{label:{LABEL_COLUMNS}}{printable(line)}")
            label = ""


def _document(trial: RunnableTransform, found: Inspection) -> dict[str, Any]:
    """Return the inspection, with the name and the limits, which are null if not declared."""
    limits = {"memory_bytes": trial.limits.memory_bytes, "timeout_ms": trial.limits.cpu_ms_per_record}
    return {"name": trial.context.name, **plain(found), "limits": limits if trial.declared else None}


def _table(trial: RunnableTransform, found: Inspection) -> Iterator[tuple[str, Iterable[str]]]:
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

"""``wasmline modules list | prune | history``: the modules on a cluster, and the deletion of those that none needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from wasmline.cli.confirmation import change_cause, require_confirmed
from wasmline.cli.json_output import echo_json
from wasmline.cli.options import json_option, kafka_config, kafka_option, reason_option, yes_option
from wasmline.cli.table import aligned
from wasmline.moments import moment
from wasmline.printable import bounded_line

if TYPE_CHECKING:
    from wasmline.control import ModuleChunks, ModulePruningPlan, ModuleReference, ModuleReferences

MAX_SHOWN = 20
"""Generations of a transform that are shown one by one."""


@click.group()
def modules() -> None:
    """List and prune the modules on a cluster: the WebAssembly bytes of deployments."""


@modules.command(name="list")
@kafka_option
@json_option
def list_(settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """List the modules, with the generations and jobs that refer to them.

    STATE is deployed if a current deployment has the module, claimed if a job's last claim has it, history if only
    earlier generations have it, unreferenced if nothing has.
    """
    from wasmline.control import read_modules

    stored = read_modules(kafka_config(settings))
    for problem in stored.references.unreadable:
        click.echo(f"what refers to a module is not known: {problem}", err=True)
    if as_json:
        echo_json([_document(each, stored.references) for each in stored.modules])
        return
    rows = [["DIGEST", "BYTES", "CHUNKS", "STATE", "REFERENCES"]]
    for each in stored.modules:
        references = stored.references.needed(each.digest)
        rows.append(
            [
                each.digest,
                f"{each.size_bytes:,}",
                "complete" if each.is_complete else "incomplete",
                _state(references),
                bounded_line("; ".join(_texts(references))) or "-",
            ]
        )
    click.echo(aligned(rows))


@modules.command()
@kafka_option
@click.option(
    "--keep-generations",
    type=click.IntRange(min=1),
    metavar="N",
    help="Delete those, too, that only generations before the last N of each transform have.  [default: keep all]",
)
@reason_option
@yes_option
@json_option
def prune(
    settings: tuple[tuple[str, str], ...], keep_generations: int | None, reason: str, yes: bool, as_json: bool
) -> None:
    """Delete the modules that nothing refers to: no current deployment, no generation in the history, no job's claim.

    With --keep-generations, earlier generations lose their modules, and cannot be deployed again by a rollback. A
    module that is deployed at the same moment is kept.
    """
    from wasmline.control import plan_module_pruning, prune_modules

    config = kafka_config(settings)
    cause = change_cause(reason)
    plan = plan_module_pruning(config, keep_generations=keep_generations)
    for line in _plan_lines(plan):
        click.echo(bounded_line(line), err=True)
    if plan.modules and not yes:
        require_confirmed("Delete them?")
    done = prune_modules(config, plan, cause=cause)
    if as_json:
        echo_json(done)
        return
    kept = f"; {len(done.kept):,} kept, which are needed by now" if done.kept else ""
    click.echo(f"{len(done.deleted):,} modules deleted, {done.size_bytes:,} bytes{kept}")


@modules.command()
@kafka_option
@json_option
def history(settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Show when modules were deleted, by whom and why."""
    from wasmline.control import read_module_events

    events = read_module_events(kafka_config(settings))
    if as_json:
        echo_json(events)
        return
    rows = [["TIME", "ACTION", "MODULES", "BYTES", "KEPT GENERATIONS", "BY", "REASON"]]
    for event in events:
        kept = "all" if event.keep_generations is None else f"last {event.keep_generations:,}"
        counts = (f"{len(event.digests):,}", f"{event.size_bytes:,}", kept)
        texts = (event.cause.by, event.cause.reason)
        rows.append([moment(event.changed_ms), event.action, *counts, *(bounded_line(text) or "-" for text in texts)])
    click.echo(aligned(rows))


def _state(references: Sequence[ModuleReference]) -> str:
    states = {"deployment": "deployed", "claim": "claimed", "history": "history"}
    kinds = {each.kind for each in references}
    return next((state for kind, state in states.items() if kind in kinds), "unreferenced")


def _texts(references: Sequence[ModuleReference]) -> Iterator[str]:
    """Yield a text for the generations of each version of a transform, and for each job."""
    generations: dict[tuple[str, str], set[int]] = {}
    for each in references:
        if each.kind != "claim":
            generations.setdefault((each.transform, each.version), set()).add(each.generation)
    for (transform, version), numbers in sorted(generations.items()):
        yield f"{transform}@{version} {_numbers(sorted(numbers))}"
    for job in sorted({each.job for each in references if each.kind == "claim"}):
        yield f"job {job}"


def _numbers(numbers: Sequence[int]) -> str:
    """Return the last generations as text."""
    shown = ", ".join(map(str, numbers[-MAX_SHOWN:]))
    more = f"{len(numbers) - MAX_SHOWN:,} more, " if len(numbers) > MAX_SHOWN else ""
    return f"({'generation' if len(numbers) == 1 else 'generations'} {more}{shown})"


def _document(module: ModuleChunks, references: ModuleReferences) -> dict[str, Any]:
    found = references.needed(module.digest)
    return {
        "digest": module.digest,
        "size_bytes": module.size_bytes,
        "complete": module.is_complete,
        "state": _state(found),
        "references": found,
    }


def _plan_lines(plan: ModulePruningPlan) -> Iterator[str]:
    lost: dict[str, list[int]] = {}
    for each in plan.lost_generations:
        lost.setdefault(each.transform, []).append(each.generation)
    for transform, numbers in lost.items():
        them = "this one" if len(numbers) == 1 else "these"
        yield f"transform {transform}: no rollback to {them} any more {_numbers(numbers)}"
    if not plan.modules:
        yield "every module is needed"
        return
    for module in plan.modules[:MAX_SHOWN]:
        state = "" if module.is_complete else ", incomplete"
        yield f"{module.digest}: {module.size_bytes:,} bytes{state}"
    if len(plan.modules) > MAX_SHOWN:
        yield f"and {len(plan.modules) - MAX_SHOWN:,} more"
    why = "nothing refers to them"
    if plan.keep_generations is not None:
        why += f", or only generations before the last {plan.keep_generations:,} of a transform"
    yield f"{len(plan.modules):,} modules of {plan.size_bytes:,} bytes are deleted: {why}"

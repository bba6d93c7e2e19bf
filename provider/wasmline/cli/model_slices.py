"""``wasmline models slices``: the slices that a model was trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wasmline.cli.options import json_option, models_option
from wasmline.printable import bounded_line, printable

if TYPE_CHECKING:
    from wasmline.training import RecordedSlice


@click.command()
@click.argument("model")
@models_option
@json_option
def slices(model: str, models: str, as_json: bool) -> None:
    """Show every slice that was new to a model in one run, the oldest first.

    FORGOTTEN counts the offsets that were asked for and that retention had removed, DAG RUN is the slice_key of the
    run. How many offsets below the end of the slices are in none is told below the table.
    """
    from wasmline.documents import plain
    from wasmline.training import ModelRegistry, SliceLog, passed_text

    history = SliceLog(models).history(model)
    if not history:
        ModelRegistry(models).get(model)  # an unknown model is an error
    click.echo(json.dumps(plain(history), indent=2) if as_json else slices_text(history))
    told = passed_text(history) if history else f"there are no slices of {printable(model)} in {printable(models)}"
    if told:
        click.echo(told, err=True)


def slices_text(history: Sequence[RecordedSlice]) -> str:
    """Return slices as a table."""
    from wasmline.cli.table import aligned
    from wasmline.moments import moment
    from wasmline.offset_ranges import count_offsets, ranges_text

    def boundary(value: str | int | dict[str, int]) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{partition}: {offset}" for partition, offset in value.items())
        return moment(value) if isinstance(value, int) else value

    rows = [["NUMBER", "TIME", "TOPIC", "SINCE", "UNTIL", "OFFSETS", "FORGOTTEN", "DAG RUN", "RANGES"]]
    for each in history:
        rows.append(
            [
                str(each.number),
                moment(each.decided_ms),
                bounded_line(each.topic),
                boundary(each.request.since),
                bounded_line(boundary(each.request.until)),
                f"{count_offsets(each.offsets):,}",
                f"{each.forgotten:,}",
                bounded_line(each.request.run),
                bounded_line(ranges_text(each.offsets)),
            ]
        )
    return aligned(rows)

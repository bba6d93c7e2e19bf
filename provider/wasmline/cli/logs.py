"""``wasmline logs``: the lines that the guests of a transform have logged, with rpk's options."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Literal

import click

from wasmline.cli.options import kafka_config, kafka_option
from wasmline.clock import now_ms
from wasmline.moments import moment, parse_moment_or_age
from wasmline.printable import printable

if TYPE_CHECKING:
    from wasmline.control import GuestLogLine


class Moment(click.ParamType[int]):
    """A time such as ``2026-11-26T16:00:00Z``, in UTC unless it says otherwise, or an age such as ``15m``; as Unix
    milliseconds."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_moment_or_age(value, now_ms())
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("name")
@kafka_option
@click.option("-f", "--follow", is_flag=True, help="Go on with lines as they come, until Ctrl-C.")
@click.option("--head", type=click.IntRange(min=0), help="Show only so many of the first lines.")
@click.option("--tail", type=click.IntRange(min=0), help="Show only so many of the last lines.")
@click.option("--since", type=Moment(), help="Lines of this time or later, or of so long ago: 15m.")
@click.option("--until", type=Moment(), help="Lines before this time, or before so long ago.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "wide", "json"]),
    default="text",
    show_default=True,
    help="text: the lines; wide: with their times; json: one object per line.",
)
def logs(
    name: str,
    settings: tuple[tuple[str, str], ...],
    follow: bool,
    head: int | None,
    tail: int | None,
    since: int | None,
    until: int | None,
    style: Literal["text", "wide", "json"],
) -> None:
    """Show the lines that the guests of the transform NAME have logged in jobs.

    The cluster keeps them for a day. A batch keeps its first lines, and says how many more there were.
    """
    if head is not None and tail is not None:
        raise click.UsageError("give --head or --tail, not both")
    if follow and (head is not None or until is not None):
        raise click.UsageError("--follow has no end: --head and --until have no meaning with it")
    config, show = kafka_config(settings), _formatter(name, style)
    from wasmline.control import GuestLogReader

    reader = GuestLogReader(config, name, since_ms=since)
    found = reader.read(until_ms=until)
    lines: Iterable[GuestLogLine] = found if tail is None else deque(found, tail)
    count = 0
    for line in islice(lines, head):
        click.echo(show(line))
        count += 1
    if follow:
        with suppress(KeyboardInterrupt):
            for line in reader.follow():
                click.echo(show(line))
    elif not count and head != 0 and tail != 0:
        click.echo(f"there are no log lines of {printable(name)} on this cluster for that time", err=True)


def _formatter(name: str, style: Literal["text", "wide", "json"]) -> Callable[[GuestLogLine], str]:
    from wasmline.documents import encode

    def plain(line: GuestLogLine) -> str:
        return printable(line.text)

    def wide(line: GuestLogLine) -> str:
        return f"{moment(line.time_ms)}  {printable(line.text)}"

    def json(line: GuestLogLine) -> str:
        return printable(encode({"time_ms": line.time_ms, "transform": name, "line": line.text}).decode())

    return {"text": plain, "wide": wide, "json": json}[style]

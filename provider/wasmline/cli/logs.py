"""``wasmline logs``: the lines that the guests of a transform have logged, with rpk's options."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from wasmline.cli.options import kafka_config, kafka_option
from wasmline.clock import now_ms
from wasmline.moments import moment, parse_moment
from wasmline.printable import printable

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION = re.compile(rf"([0-9]{{1,9}})({'|'.join(UNITS_MS)})")


class Moment(click.ParamType[int]):
    """A time such as ``2026-11-26T16:00:00Z``, in UTC unless it says otherwise, or a duration before now such as
    ``15m``; as Unix milliseconds."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if found := DURATION.fullmatch(value):
            return now_ms() - int(found[1]) * UNITS_MS[found[2]]
        try:
            return parse_moment(value)
        except ValueError:
            text = f"{value!r} is neither a time such as 2026-11-26T16:00:00Z nor a duration such as 15m"
            self.fail(text, param, ctx)


class LogLine(NamedTuple):
    """A line, and when it was written to the cluster, in Unix milliseconds."""

    time_ms: int
    text: str


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
    from wasmline.control import control_topics
    from wasmline.kafka import follow as follow_topic
    from wasmline.kafka import read_range

    control_topics.ensure(config)
    begin, end = _bounds(config, since)
    written = _lines(name, read_range(config, control_topics.LOGS, {0: (begin, end)}))
    found = (line for line in written if until is None or line.time_ms < until)
    lines: Iterable[LogLine] = found if tail is None else deque(found, tail)
    count = 0
    for line in islice(lines, head):
        click.echo(show(line))
        count += 1
    if follow:
        with suppress(KeyboardInterrupt):
            for line in _lines(name, follow_topic(config, control_topics.LOGS, end)):
                click.echo(show(line))
    elif not count and head != 0 and tail != 0:
        click.echo(f"there are no log lines of {printable(name)} on this cluster for that time", err=True)


def _bounds(config: KafkaConfig, since: int | None) -> tuple[int, int]:
    from wasmline.control.control_topics import LOGS
    from wasmline.kafka import Topics

    topics = Topics(config)
    begins = topics.beginning_offsets(LOGS) if since is None else topics.offsets_for_time(LOGS, since)
    return begins[0], topics.end_offsets(LOGS)[0]


def _lines(name: str, messages: Iterable[Any]) -> Iterator[LogLine]:
    key = name.encode()
    for message in messages:
        if message.key() == key:
            yield LogLine(message.timestamp()[1], (message.value() or b"").decode(errors="replace"))


def _formatter(name: str, style: Literal["text", "wide", "json"]) -> Callable[[LogLine], str]:
    from wasmline.documents import encode

    def plain(line: LogLine) -> str:
        return printable(line.text)

    def wide(line: LogLine) -> str:
        return f"{moment(line.time_ms)}  {printable(line.text)}"

    def json(line: LogLine) -> str:
        return printable(encode({"time_ms": line.time_ms, "transform": name, "line": line.text}).decode())

    return {"text": plain, "wide": wide, "json": json}[style]

"""``wasmline run``: a transform as a filter between two pipes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click

from wasmline.build.jsonl import output_lines, read_batches
from wasmline.cli.columns import printable
from wasmline.cli.options import guest_options, registry_option
from wasmline.cli.trial import Trial, find
from wasmline.wasm import TransformResult, TransformRuntime

SOME_FAILED = 3

_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""In UTF-8, the control characters that JSON allows in a string as they are and a terminal obeys."""


@click.command()
@click.argument("transform", metavar="MODULE|FOLDER|NAME@VERSION")
@click.option(
    "--input-topic", metavar="NAME", help="The topic that the records come from, instead of the declared one."
)
@guest_options
@click.option(
    "--logs",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE|-",
    help="Write what the guest logs to FILE, or with - to stderr.",
)
@registry_option
@click.pass_context
def run(ctx: click.Context, /, transform: str, logs: str | None, registry: str, **guest: Any) -> None:
    """Apply a transform to records on stdin and print what it makes of them, as JSON Lines.

    \b
    in   {"key": K, "value": V, "headers": [[K, V], ...], "timestamp": MS, "partition": P, "offset": N}
    out  {"output": INDEX, "topic": NAME, "key": K, "value": V, "headers": [...], "source": {...}}
    bad  {"error": NAME, "reason": TEXT, "source": {"partition": P, "offset": N}}

    Strings are UTF-8, other bytes {"base64": "..."}; only the value is required. A failing record does not end the
    run, but the exit status is 3.
    """
    trial = find(transform, registry).adjusted(**guest)
    with _log_writer(logs) as write_log:
        failed = _pipe(trial, write_log)
    ctx.exit(SOME_FAILED if failed else 0)


def _pipe(trial: Trial, write_log: Callable[[str], None] | None) -> int:
    """Transform stdin to stdout, batch by batch, and return how many records failed."""
    stdin, stdout = _bytes_of(sys.stdin, "stdin"), _bytes_of(sys.stdout, "stdout")
    failed = 0
    with TransformRuntime().compile(trial.wasm).instantiate(trial.context, trial.limits) as instance:
        for batch in read_batches(stdin, "stdin"):
            result = instance.transform(batch)
            failed += len(result.failures)
            lines = output_lines(batch, result, trial.context.output_topics)
            stdout.writelines(_CONTROL.sub(_escaped, line) for line in lines)
            stdout.flush()
            if write_log:
                write_log(_log_text(result))
    return failed


def _escaped(control: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(control[0].decode())


def _bytes_of(stream: TextIO | None, name: str) -> BinaryIO:
    """Return the bytes of a standard stream, which Python has not where the process was started without it."""
    if stream is None:
        raise OSError(f"{name} is closed: connect it to a file, a pipe or /dev/null")
    return stream.buffer


def _log_text(result: TransformResult) -> str:
    text = "".join(line.text for line in result.logs)
    return text + (f"({result.logs_dropped} more lines were over the log limit)\n" if result.logs_dropped else "")


@contextmanager
def _log_writer(place: str | None) -> Iterator[Callable[[str], None] | None]:
    """Yield what writes the guest's log: to a file as it is, to stderr as a terminal may show it."""
    if place is None:
        yield None
    elif place == "-":
        stderr = _bytes_of(sys.stderr, "stderr")
        yield lambda text: _write(stderr, printable(text, lines=True))
    else:
        with Path(place).open("wb") as file:
            yield partial(_write, file)


def _write(file: BinaryIO, text: str) -> None:
    file.write(text.encode("utf-8", "replace"))
    file.flush()

"""``wasmline run``: runs a transform from stdin to stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click

from wasmline.build.jsonl import output_lines, read_batches
from wasmline.cli.options import guest_options, registry_option
from wasmline.cli.runnable import RunnableTransform, resolve_transform
from wasmline.printable import printable
from wasmline.wasm import TransformResult, TransformRuntime

EXIT_RECORDS_FAILED = 3


@click.command()
@click.argument("transform", metavar="MODULE|FOLDER|NAME@VERSION")
@click.option("--input-topic", metavar="NAME", help="The input topic of the records, instead of the declared one.")
@guest_options
@click.option(
    "--logs",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE|-",
    help="Write the guest's log to FILE, or with - to stderr.",
)
@registry_option
@click.pass_context
def run(ctx: click.Context, /, transform: str, logs: str | None, registry: str, **guest: Any) -> None:
    """Apply a transform to records on stdin and print its outputs, as JSON Lines.

    \b
    in   {"key": K, "value": V, "headers": [[K, V], ...], "timestamp": MS, "partition": P, "offset": N}
    out  {"output": INDEX, "topic": NAME, "key": K, "value": V, "headers": [...], "source": {...}}
    bad  {"error": NAME, "reason": TEXT, "source": {"partition": P, "offset": N}}

    Strings are UTF-8, other bytes {"base64": "..."}; only the value is required. A failing record does not end the
    run, but the exit status is 3.
    """
    trial = resolve_transform(transform, registry).adjusted(**guest)
    with _log_file(logs) as log_file:
        failed = _pipe(trial, log_file, shown=logs == "-")
    ctx.exit(EXIT_RECORDS_FAILED if failed else 0)


def _pipe(trial: RunnableTransform, log_file: BinaryIO | None, *, shown: bool) -> int:
    """Transform stdin to stdout, batch by batch, and return the number of failed records."""
    stdin, stdout = _bytes_of(sys.stdin, "stdin"), _bytes_of(sys.stdout, "stdout")
    failed = 0
    with TransformRuntime().compile(trial.wasm).instantiate(trial.context, trial.limits) as instance:
        for batch in read_batches(stdin, "stdin"):
            for result in instance.parts(batch):
                failed += len(result.failures)
                stdout.writelines(output_lines(batch, result, trial.context.output_topics))
                stdout.flush()
                if log_file:
                    _write_logs(log_file, result, shown=shown)
    return failed


def _bytes_of(stream: TextIO | None, name: str) -> BinaryIO:
    """Return the binary buffer of a standard stream, which is None if the process was started without it."""
    if stream is None:
        raise OSError(f"{name} is closed: connect it to a file, a pipe or /dev/null")
    return stream.buffer


def _write_logs(file: BinaryIO, result: TransformResult, *, shown: bool) -> None:
    """Write a guest's log lines unchanged, or with ``shown`` escaped for a terminal."""
    texts = (printable(line.text, lines=True) if shown else line.text for line in result.logs)
    file.writelines(text.encode() for text in texts)
    if result.logs_dropped:
        file.write(f"({result.logs_dropped} more lines exceeded the log limit)\n".encode())
    file.flush()


@contextmanager
def _log_file(place: str | None) -> Iterator[BinaryIO | None]:
    if place is None:
        yield None
    elif place == "-":
        yield _bytes_of(sys.stderr, "stderr")
    else:
        with Path(place).open("wb") as file:
            yield file

"""Prints documents as JSON for machines, without control characters."""

from __future__ import annotations

from typing import Any

import click

from wasmline.printable import bounded_line, printable


def echo_json(document: Any) -> None:
    """Print a document as indented JSON."""
    import msgspec

    from wasmline.documents import encode

    click.echo(printable(msgspec.json.format(encode(document), indent=2).decode(), lines=True))


def echo_result(document: dict[str, Any], text: str, as_json: bool) -> None:
    """Print what was done: as JSON for machines, else as one line."""
    if as_json:
        echo_json(document)
    else:
        click.echo(bounded_line(text))

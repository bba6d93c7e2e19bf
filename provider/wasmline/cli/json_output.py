"""Prints documents as JSON for machines, without control characters."""

from __future__ import annotations

from typing import Any

import click

from wasmline.printable import printable


def echo_json(document: Any) -> None:
    """Print a document as indented JSON."""
    import msgspec

    from wasmline.documents import encode

    click.echo(printable(msgspec.json.format(encode(document), indent=2).decode(), lines=True))

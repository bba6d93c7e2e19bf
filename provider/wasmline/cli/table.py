"""Formats text in columns for a terminal, without control characters."""

from __future__ import annotations

from collections.abc import Sequence

from wasmline.printable import printable


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return one line for each row, with its printable cells aligned in columns."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join((indent + line).rstrip() for line in cells)

"""Columns of text, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return one line for each row, its cells under those of the row before."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join((indent + line).rstrip() for line in cells)

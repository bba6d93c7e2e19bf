"""The picture of the benchmark: how long a record takes, over native code, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.cell import Cell
from matplotlib.figure import Figure

COLOURS = {"wasm": "#4f7cf7", "pyarrow": "#7a8b99", "python": "#e0a526"}


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Write an SVG of some cells: a group of bars each, a bar per contestant; the line at 1 is native code."""
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for number, (name, colour) in enumerate(COLOURS.items()):
        places = [index + (number - 1) * 0.26 for index, cell in enumerate(cells) if name in cell.ns]
        heights = [cell.ns[name] / cell.ns["native"] for cell in cells if name in cell.ns]
        bars = axes.bar(places, heights, width=0.24, color=colour, label=name)
        axes.bar_label(bars, fmt="{:.2g}×", fontsize=7.5, padding=2)
    axes.axhline(1, color="#0a0b0c", linewidth=0.9)
    axes.set_yscale("log")
    axes.set_xticks(range(len(cells)), [f"{cell.transform.replace('_', ' ')}\n{cell.value_bytes} B" for cell in cells])
    axes.tick_params(labelsize=8)
    axes.set_ylabel("time per record over native")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)

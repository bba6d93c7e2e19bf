"""The picture of the benchmark: how many times as fast as the Java library, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from consumer.cell import Cell
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

COLOURS = {"threads": "#4f7cf7", "asyncio": "#8fb0ff", "pyrallel": "#e0a526"}


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Write an SVG: a group of bars a cell, a bar a contestant. The line at 1 is the Java library, a dash the bound.

    Cells without a bound, whose handlers do nothing, are left out.
    """
    cells = [cell for cell in cells if cell.bound]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (name, colour) in enumerate(COLOURS.items()):
        faster = [(index, ratio) for index, cell in enumerate(cells) if (ratio := cell.over(name, "java")) is not None]
        places = [index + (number - 1) * 0.27 for index, _ in faster]
        bars = axes.bar(places, [ratio - 1 for _, ratio in faster], bottom=1, width=0.25, color=colour, label=name)
        axes.bar_label(bars, [f"{ratio:.2g}" for _, ratio in faster], fontsize=6.5, padding=2)
    places = list(range(len(cells)))
    bounds = [cell.seconds("java") / cell.bound for cell in cells]
    lefts, rights = [place - 0.42 for place in places], [place + 0.42 for place in places]
    axes.hlines(bounds, lefts, rights, color="#7a8b99", linewidth=1.1, linestyle=(0, (3, 2)), label="the bound")
    axes.axhline(1, color="#0a0b0c", linewidth=0.9)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}×"))
    labels = [cell.label.replace(", ", "\n") + f"\nC = {cell.concurrency}" for cell in cells]
    axes.set_xticks(places, labels)
    axes.tick_params(labelsize=6.5)
    axes.set_ylabel("times as fast as the Java library")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, ncols=4, loc="outside upper right")
    figure.savefig(path)

"""The plots of the report, as SVG in the page's colours: axes and text are drawn in ``currentColor``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from delivery.correlations import Point, Signals
from delivery.report import BatchPoint
from wasmline.training import Histogram

Vector = npt.NDArray[np.float64]

INK = "#0a0b0c"
"""Placeholder of the page's text colour; no plot uses it otherwise."""

BLUE, CORAL, AMBER = "#4f7cf7", "#f0624d", "#e0a526"

TITLE: dict[str, Any] = {"loc": "left", "color": INK, "fontsize": 9.5, "fontweight": "bold"}

STEP_KM = 9.5
"""Distance from which the delivery time increases."""


def time_by_distance(signals: Signals) -> str:
    """Return time against distance for all rows, and without the rows whose coordinates lost a sign."""
    figure, (raw, clean) = _figure(9.6, 3.6, columns=2)
    _scatter(raw, signals.kept, BLUE, f"kept ({_share(signals)})")
    _scatter(raw, signals.broken, CORAL, "negative coordinate")
    raw.set_title("As it came", **TITLE)
    raw.set(xlabel="distance, km", ylabel="delivery time, min")
    raw.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if signals.broken:
        _legend(raw)
    _scatter(clean, signals.kept, BLUE, None)
    middle, mean = _means(signals.kept)
    clean.plot(middle, mean, color=AMBER, linewidth=2.2, label="mean")
    clean.axvline(STEP_KM, color=INK, linewidth=0.8, linestyle=(0, (4, 4)), alpha=0.5)
    clean.set_title("Contract kept", **TITLE)
    clean.set(xlabel="distance, km")
    _legend(clean)
    return _svg(figure, "Delivery time against distance, raw and cleaned")


def predictions(sample: Sequence[tuple[float, float]]) -> str:
    """Return predictions against truth, with the line of a perfect model."""
    figure, (axes,) = _figure(4.7, 3.6)
    truth, predicted = np.array(sample, dtype=float).reshape(-1, 2).T
    ends = (
        [float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))] if len(truth) else [0, 1]
    )
    axes.plot(ends, ends, color=AMBER, linewidth=1.6)
    axes.scatter(_spread(truth), predicted, s=7, color=BLUE, alpha=0.35, linewidths=0, rasterized=True)
    axes.set(xlabel="true time, min", ylabel="predicted, min")
    return _svg(figure, "Predictions against truth on held-out deliveries")


def residuals(histogram: Histogram) -> str:
    """Return the residuals of the predictions, over all held-out rows."""
    figure, (axes,) = _figure(4.7, 3.6)
    edges = np.array(histogram.edges)
    axes.bar(edges[:-1], histogram.counts, width=np.diff(edges) * 0.9, align="edge", color=BLUE)
    axes.axvline(0, color=AMBER, linewidth=1.6)
    axes.set(xlabel="true minus predicted, min", ylabel="held-out deliveries")
    return _svg(figure, "Residuals of the held-out deliveries")


def throughput(batches: Sequence[BatchPoint]) -> str:
    """Return records per second of each micro-batch."""
    figure, (axes,) = _figure(9.6, 2.6)
    names = [str(batch.batch) for batch in batches]
    rates = [batch.records / batch.seconds if batch.seconds else 0.0 for batch in batches]
    bars = axes.bar(names, rates, color=BLUE, width=min(0.7, 0.08 * max(len(names), 1)))
    labels = [f"{batch.records:,}" for batch in batches] if len(batches) <= 16 else []
    if labels:
        axes.bar_label(bars, labels=labels, color=INK, padding=3, fontsize=8)
        axes.margins(y=0.18)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(xlabel="micro-batch, with its number of records" if labels else "micro-batch", ylabel="records/s")
    return _svg(figure, "Throughput of each micro-batch")


def _figure(width: float, height: float, *, columns: int = 1) -> tuple[Any, Any]:
    # Not pyplot: it keeps every figure alive in a global, and asks for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    panels = figure.subplots(1, columns, squeeze=False)[0]
    for axes in panels:
        axes.patch.set_alpha(0)
        axes.tick_params(colors=INK, labelsize=8.5, length=0)
        axes.grid(color=INK, alpha=0.12, linewidth=0.6)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set(color=INK, alpha=0.4)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set(color=INK, fontsize=9)
    return figure, panels


def _scatter(axes: Any, points: Sequence[Point], colour: str, label: str | None) -> None:
    distance, minutes = np.array(points, dtype=float).reshape(-1, 2).T
    axes.scatter(distance, _spread(minutes), s=6, color=colour, alpha=0.4, linewidths=0, label=label, rasterized=True)


def _spread(minutes: Vector) -> Vector:
    """Return whole minutes spread over their minute, so that the points do not form lines."""
    return minutes + np.random.default_rng(0).uniform(-0.45, 0.45, len(minutes))


def _means(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Return the mean time per 1.5 km, for bins with enough points."""
    distance, minutes = np.array(points, dtype=float).reshape(-1, 2).T
    bins = np.floor(distance / 1.5)
    wanted = [number for number in np.unique(bins) if np.sum(bins == number) >= 10]
    return (
        [float(np.mean(distance[bins == number])) for number in wanted],
        [float(np.mean(minutes[bins == number])) for number in wanted],
    )


def _share(signals: Signals) -> str:
    shown = len(signals.kept)
    return f"a sample of {shown:,}" if shown < signals.rows else f"{shown:,}"


def _legend(axes: Any) -> None:
    legend = axes.legend(
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        markerscale=2,
        ncols=2,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0.1,
        columnspacing=1,
        handletextpad=0.3,
    )
    for handle in legend.legend_handles:
        handle.set_alpha(1)


def _svg(figure: Any, title: str) -> str:
    """Return a figure as an SVG element: equal figures give equal text, and different ones share no ids."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.family": "sans-serif"}):
        figure.savefig(text, format="svg", dpi=170, metadata={"Date": None, "Title": title})
    document = text.getvalue()
    element = document[document.index("<svg") :].replace(INK, "currentColor")
    return element.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)

"""Formats numbers and correlations for the terminal and the page."""

from __future__ import annotations

from delivery.report import StreamFacts
from wasmline.training import Correlation, Decision, ErrorComparison


def count(number: float) -> str:
    """Return a whole number with thin groups: ``45,600``."""
    return f"{number:,.0f}"


def size(octets: int) -> str:
    """Return a size in a suitable unit."""
    return f"{octets} B" if octets < 1024 else f"{octets / 1024:,.1f} KiB"


def seconds(time: float) -> str:
    """Return a duration: ``0.4 s``, ``2 min 05 s``."""
    return f"{time:.1f} s" if time < 60 else f"{int(time // 60)} min {int(time % 60):02d} s"


def throughput(stream: StreamFacts) -> str:
    """Return the rate after the first micro-batch, and how long that one took."""
    if not stream.batches:
        return "no micro-batch"
    first = f"the first micro-batch, in which Spark's Python workers start ({seconds(stream.start_seconds)})"
    rate = stream.records_per_second
    return f"all in {first}" if rate is None else f"{count(rate)} records/s after {first}"


def digest(text: str) -> str:
    """Return the beginning of a digest, enough to recognise it."""
    return f"{text[:19]}…" if len(text) > 20 else text


def precision(deviation: float) -> str:
    """Return the agreement of numbers, from their largest relative deviation."""
    return f"to {deviation:.0e} of their value" if deviation else "to the last bit"


def coefficient(number: float | None, digits: int = 2) -> str:
    """Return a correlation with its sign, or a dash if undefined."""
    if number is None:
        return "–"
    return f"{number:+.{digits}f}".replace("-", "−")  # noqa: RUF001 - a real minus sign


def strength(correlation: Correlation) -> str:
    """Return Pearson's r with its sign, or eta squared, or a dash if neither is defined."""
    if correlation.eta_squared is not None:
        return f"η² = {correlation.eta_squared:.3f}"
    shown = coefficient(correlation.pearson, 3)
    return shown if correlation.pearson is None else f"r = {shown}"


def groups(correlation: Correlation) -> str:
    """Return the mean per value of a text feature, the largest first."""
    ordered = sorted(correlation.means.items(), key=lambda item: -item[1])
    return ", ".join(f"{value.replace('_', ' ')} {mean:.1f}" for value, mean in ordered)


def error(rmse: float | None) -> str:
    """Return an RMSE in minutes, or a dash if it was not measured."""
    return "–" if rmse is None else f"{rmse:.3f} min"


def comparisons(decision: Decision) -> list[tuple[str, str, str, str, str]]:
    """Return the gate's figures beside the champion: on what, RMSE, the champion's, their ratio, rows."""
    compared = {"held-out rows": decision.held_out, **decision.segments, "newest records": decision.forward}
    return [
        (name, error(each.rmse), error(each.champion_rmse), ratio(each), count(each.rows))
        for name, each in compared.items()
        if each
    ]


def ratio(comparison: ErrorComparison) -> str:
    """Return the interval of a ratio of RMSEs."""
    found = comparison.ratio
    return f"{found.low:.3f} to {found.high:.3f}" if found else "not tested"

"""Prints the summary of a demo run to the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from delivery import formatting
from delivery.report import DemoReport
from enriching.benchmark_result import Comparison

REASONS = 5
"""Maximum reasons of dead letters shown."""

CAPTION = "r: correlation; η²: share of the variance; all records: features and dead letters"


def print_summary(report: DemoReport, console: Console) -> None:
    """Print records in and out, metrics of the model, durations of the steps, and further things to see."""
    accounting, stream, training, serving = report.accounting, report.stream, report.training, report.serving
    records, rows = formatting.count(accounting.records_in), training.rows
    reasons = [f"{formatting.count(number)}: {reason}" for reason, number in list(accounting.reasons.items())[:REASONS]]
    metrics, figures = training.metrics, formatting.comparisons(training.decision)
    facts = {
        "records in": f"{records} on {stream.partitions} partitions ({report.source})",
        "features out": f"{formatting.count(accounting.features)}; {formatting.count(accounting.keys)} keys, "
        f"each in order; distances as computed independently, {formatting.precision(accounting.largest_deviation)}",
        "dead letters": "\n".join([f"{formatting.count(accounting.dead_letters)}, by reason:", *reasons]),
        "throughput": formatting.throughput(stream),
        "module": formatting.size(report.module.size),
        "model": f"{training.model}@{training.version}: RMSE {metrics.rmse:.3f} min on "
        f"{formatting.count(rows.holdout)} held-out features, trained on {formatting.count(rows.training)} others",
        "  beside": f"mean predictor {formatting.error(metrics.mean_rmse)}, linear predictor "
        f"{formatting.error(metrics.linear_rmse)}; forward error {formatting.error(metrics.forward_rmse)} on the "
        f"{formatting.count(metrics.forward_rows)} newest records, by a model of those before",
        "decision": "\n".join(
            [
                f"{training.decision.decision}: {training.decision.reason}",
                *(f"{name}: {own}, champion {its}, ratio {ratio}" for name, own, its, ratio, _ in figures),
            ]
        ),
        "predictions": f"{formatting.count(serving.served.predictions)} in {serving.output_topic}, one for each "
        f"feature, equal to XGBoost's to the bit; RMSE {serving.served.rmse:.3f} on the held-out rows",
        **_compared(report.comparison),
        "steps": ", ".join(f"{name} {formatting.seconds(time)}" for name, time in report.steps.items()),
    }
    console.rule(f"{report.module.name}@{report.module.version}")
    console.print(_facts(facts))
    console.print(_correlations(report))
    console.print(Text("one prediction, and what it comes from:", "dim"))
    for line in serving.explained:
        console.print(Text(f"  {line}"), soft_wrap=True)
    for name, text in {"the module's digest": report.module.digest, **report.look_next}.items():
        # Lines of their own and never folded, so that a command or a digest can be copied.
        console.print(Text.assemble((f"{name}: ", "dim"), text), soft_wrap=True)


def _compared(comparison: Comparison | None) -> dict[str, str]:
    if comparison is None:
        return {}
    plain, parallel = comparison.plain, comparison.parallel
    return {
        "HTTP calls": f"{formatting.count(comparison.records)} orders on {comparison.partitions} partitions, "
        f"one call of {comparison.delay_ms:.0f} ms for each; calls/s from the first call to the last",
        "  sequential": f"{formatting.count(plain.rate)} calls/s: {plain.at_once} at a time, one consumer for each "
        f"partition; the first {formatting.count(plain.calls)} orders",
        "  by key": f"{formatting.count(parallel.rate)} calls/s: {parallel.at_once} at a time, {comparison.factor:.1f} "
        "times as many; all orders, each once, those of a customer in order, "
        f"{comparison.dead_letters} dead letters",
    }


def _facts(facts: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(name, Text(fact))  # not markup: a reason may contain brackets
    return table


def _correlations(report: DemoReport) -> Table:
    heads = ("with the delivery time", "all records", "features", "mean minutes")
    table = Table(*heads, box=None, header_style="dim", caption=CAPTION, caption_justify="left")
    for raw, clean in zip(report.signals.raw, report.signals.clean, strict=True):
        table.add_row(raw.feature, formatting.strength(raw), formatting.strength(clean), formatting.groups(clean))
    return table

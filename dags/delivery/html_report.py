"""The report as one HTML file without scripts, fonts or links to load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec

from delivery import formatting, plots
from delivery.report import JSON_FILE, PAGE_FILE, DemoReport, StreamFacts
from enriching.benchmark_result import Comparison
from wasmline.offset_ranges import ranges_text
from wasmline.training import Correlation

STYLE = Path(__file__).with_name("report.css")


def write_report(report: DemoReport, folder: Path) -> Path:
    """Write ``report.json`` and ``report.html`` and return the page's path. The page needs no other file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    page = folder / PAGE_FILE
    page.write_text(render(report), encoding="utf-8")
    return page


def render(report: DemoReport) -> str:
    """Return the page."""
    stream = report.stream
    sections = [
        _header(report),
        _tiles(report),
        _panel("Where the records went", _accounts(report)),
        _panel("Distance tells the time, once the contract holds", _contrast(report)),
        _panel("What each fact says about the time", _correlations(report)),
        _panel("The model", _model(report)),
        _pair(report),
        _panel("The model in the stream", _serving(report)),
        _panel("Throughput", f"<p>{escape(formatting.throughput(stream))}.</p>{plots.throughput(stream.batches)}"),
        *_compared(report.comparison),
        _panel("Seconds per step", _steps(report.steps)),
        _panel("Where to look next", _list(report.look_next)),
    ]
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(report.module.name)} · {escape(report.run)}</title>\n"
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _header(report: DemoReport) -> str:
    module = report.module
    return (
        f"<header><h1>{escape(module.name)}<small>@{escape(module.version)}</small></h1>"
        f"<p>{escape(report.stream.input_topic)} <i>→</i> {escape(report.stream.output_topic)} "
        f"<i>→</i> {escape(report.training.model)}@{escape(report.training.version)}</p>"
        f"<p class=quiet>{escape(report.source)} · run {escape(report.run)} · {escape(report.created)}</p></header>"
    )


def _tiles(report: DemoReport) -> str:
    accounting, stream, training = report.accounting, report.stream, report.training
    better = 1 - training.metrics.rmse / training.metrics.mean_rmse
    tiles = [
        (formatting.count(accounting.records_in), "records in", f"{stream.partitions} partitions"),
        (
            formatting.count(accounting.features),
            "features out",
            f"{formatting.count(accounting.keys)} keys, each in order",
        ),
        (
            formatting.count(accounting.dead_letters),
            "dead letters",
            f"{accounting.dead_letters / max(accounting.records_in, 1):.2%}",
        ),
        (_rate(stream), "records/s", f"after the first of {len(stream.batches)} micro-batches"),
        (
            f"{training.metrics.rmse:.2f} min",
            "RMSE",
            f"mean predictor {training.metrics.mean_rmse:.2f}, {better:.0%} better",
        ),
        (formatting.size(report.module.size), "Wasm module", formatting.digest(report.module.digest)),
        (_change(report), "distance and time, r", "raw → clean"),
        (formatting.seconds(sum(report.steps.values())), "in all", f"{len(report.steps)} steps"),
    ]
    cells = "".join(
        f"<div class=tile><b>{escape(value)}</b><span>{escape(name)}</span><small>{escape(note)}</small></div>"
        for value, name, note in tiles
    )
    return f"<section class=tiles>{cells}</section>"


def _rate(stream: StreamFacts) -> str:
    rate = stream.records_per_second
    return "–" if rate is None else formatting.count(rate)


def _accounts(report: DemoReport) -> str:
    accounting = report.accounting
    rows = [(reason, formatting.count(number)) for reason, number in accounting.reasons.items()]
    repeated = f", {formatting.count(accounting.duplicates)} of them more than once" if accounting.duplicates else ""
    precision = formatting.precision(accounting.largest_deviation)
    reasons = _table(("reason", "records"), rows) if rows else "<p>Nothing was dead-lettered.</p>"
    return (
        f"<p>Each of the {formatting.count(accounting.records_in)} records is accounted for, as a feature or as a dead "
        f"letter{repeated}. Distances are those of an independent computation, {precision}.</p>{reasons}"
    )


def _change(report: DemoReport) -> str:
    raw, clean = (_of(found, "distance_km") for found in (report.signals.raw, report.signals.clean))
    return " → ".join(formatting.coefficient(one.pearson) for one in (raw, clean))


def _contrast(report: DemoReport) -> str:
    raw, clean = (_of(found, "distance_km") for found in (report.signals.raw, report.signals.clean))
    broken = raw.rows - clean.rows
    return (
        f"<p>In {formatting.count(broken)} rows ({broken / max(raw.rows, 1):.2%}) a coordinate of the restaurant has "
        "the wrong sign, which puts it on another continent. They alone take the correlation of distance and time from "
        f"<b>{escape(formatting.strength(clean))}</b> to <b>{escape(formatting.strength(raw))}</b>.</p>"
        f"{plots.time_by_distance(report.signals)}"
    )


def _correlations(report: DemoReport) -> str:
    found = zip(report.signals.raw, report.signals.clean, strict=True)
    rows = [
        (raw.feature, formatting.strength(raw), formatting.strength(clean), formatting.groups(clean))
        for raw, clean in found
    ]
    counts = tuple(max(one.rows for one in of) for of in (report.signals.raw, report.signals.clean))
    heads = (
        "fact",
        f"raw, {formatting.count(counts[0])} rows",
        f"clean, {formatting.count(counts[1])} rows",
        "mean minutes",
    )
    return _table(heads, rows)


def _model(report: DemoReport) -> str:
    training = report.training
    rows = training.rows
    facts = {
        "trained on": f"{formatting.count(rows.training)} rows; left out: "
        f"{formatting.count(rows.excluded)} implausible, {formatting.count(rows.duplicates)} repeated",
        "measured on": f"{formatting.count(rows.holdout)} held-out rows: RMSE {training.metrics.rmse:.3f}, "
        f"MAE {training.metrics.mae:.3f}, R² {training.metrics.r2:.3f}; mean predictor "
        f"{training.metrics.mean_rmse:.3f}, linear predictor {formatting.error(training.metrics.linear_rmse)}",
        "forward error": f"{formatting.error(training.metrics.forward_rmse)} on the "
        f"{formatting.count(training.metrics.forward_rows)} newest records, by a model of those before",
        "dataset": f"{training.dataset.topic}, {ranges_text(training.dataset.offsets)}",
        "dataset digest": training.dataset_digest,
        "model digest": f"{training.digest} ({formatting.size(training.size)})",
        "decision": f"{training.decision.decision}: {training.decision.reason}",
    }
    figures = formatting.comparisons(training.decision)
    table = _table(("on", "RMSE", "champion", "ratio", "rows"), figures) if figures else ""
    return _list(facts) + table


def _serving(report: DemoReport) -> str:
    served, module = report.serving.served, report.serving.module
    text = (
        f"<p>{formatting.count(served.predictions)} predictions in {escape(report.serving.output_topic)}, one for each "
        f"feature, each equal to XGBoost's to the bit, by {escape(module.name)}@{escape(module.version)}, a module of "
        f"{formatting.size(module.size)}. RMSE {served.rmse:.3f} on {formatting.count(served.held_out)} held-out "
        f"rows; training measured {report.training.metrics.rmse:.3f}.</p>"
    )
    return text + f"<pre>{escape(chr(10).join(report.serving.explained))}</pre>"


def _compared(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return []
    rows = [
        (name, formatting.count(one.at_once), formatting.count(one.calls), formatting.count(one.rate))
        for name, one in (
            (f"{comparison.partitions} plain consumers", comparison.plain),
            ("mode parallel", comparison.parallel),
        )
    ]
    text = (
        f"<p>{formatting.count(comparison.records)} orders on {comparison.partitions} partitions, each with a call of "
        f"{comparison.delay_ms:.0f} ms to a service. In mode parallel the orders of one customer wait for each other, "
        f"and for no others: <b>{comparison.factor:.1f} times</b> as many a second, each once and in its "
        f"customer's order, {formatting.count(comparison.dead_letters)} of them dead letters.</p>"
    )
    heads = ("", "calls at a time", "calls", "calls/s, from the first to the last")
    return [_panel("Many calls at a time, beyond the partitions", text + _table(heads, rows))]


def _steps(steps: Mapping[str, float]) -> str:
    longest = max(steps.values(), default=0.0) or 1.0
    bars = "".join(
        f'<li><span>{escape(name)}</span><i style="width:{60 * time / longest:.1f}%"></i>'
        f"<b>{escape(formatting.seconds(time))}</b></li>"
        for name, time in steps.items()
    )
    return f"<ol class=steps>{bars}</ol>"


def _pair(report: DemoReport) -> str:
    predictions = _panel("Predictions", plots.predictions(report.training.sample))
    return f'<div class="pair">{predictions}{_panel("Residuals", plots.residuals(report.training.residuals))}</div>'


def _panel(title: str, content: str) -> str:
    return f"<section class=panel><h2>{escape(title)}</h2>{content}</section>"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(facts: Mapping[str, str]) -> str:
    entries = "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in facts.items())
    return f"<dl>{entries}</dl>"


def _of(correlations: tuple[Correlation, ...], feature: str) -> Correlation:
    return next(found for found in correlations if found.feature == feature)

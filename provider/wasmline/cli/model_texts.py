"""Texts of models, of decisions on them and of comparisons, for terminals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from wasmline.cli.table import aligned
from wasmline.moments import moment
from wasmline.offset_ranges import ranges_text
from wasmline.printable import bounded_line

if TYPE_CHECKING:
    from wasmline.training import ErrorComparison, Metrics, ModelComparison, ModelVersion, Promotion

LABEL_COLUMNS = 12


def list_text(listed: Sequence[dict[str, Any]]) -> str:
    """Return models as a table; below it, what disagrees of each."""
    rows = [["MODEL", "CHAMPION", "VERSIONS", "LATEST", "RMSE", "SERVING"]]
    for each in listed:
        rmse = "-" if each["rmse"] is None else f"{each['rmse']:.3f}"
        versions = each["versions"]
        state = each["serving"]["state"] if each["serving"] else "-"
        latest = versions[-1] if versions else "-"
        rows.append([each["model"], each["champion"] or "-", str(len(versions)), latest, rmse, state])
    served = [each["serving"] for each in listed if each["serving"]]
    lines = [bounded_line(f"{each['state']}: {each['explanation']}") for each in served if not each["agrees"]]
    return "\n".join([aligned(rows), *lines])


def show_text(stored: ModelVersion, shown: dict[str, Any], decisions: Sequence[Promotion]) -> str:
    """Return one version with labels, and the figures of the last of the ``decisions`` on it."""
    lines = _lines(stored, shown, decisions)
    return "\n".join(f"{label:{LABEL_COLUMNS}}{bounded_line(line)}" for label, line in lines)


def _lines(stored: ModelVersion, shown: dict[str, Any], decisions: Sequence[Promotion]) -> Iterator[tuple[str, str]]:
    record, dataset = stored.record, stored.record.dataset
    champion = shown["champion"]
    role = "the champion" if champion == stored.version else f"the champion is {champion or 'none'}"
    yield "model", f"{stored.name}@{stored.version}, {role}"
    yield "digest", f"{stored.digest}, {stored.size:,} bytes"
    yield "created", f"{record.created}, job run {record.run or '-'}"
    yield "topic", f"{dataset.topic}, {dataset.offset_count:,} offsets: {ranges_text(dataset.offsets)}"
    yield "dataset", f"{record.dataset_digest}, where {dataset.where}"
    yield "rows", f"{record.training_rows:,} trained on, {record.metrics.rows:,} held out"
    yield "window", record.window or "-"
    yield "target", record.target
    yield "features", ", ".join(_feature(name, record.layout.categories) for name in record.layout.features)
    yield "parameters", ", ".join(_pairs(record.parameters))
    yield "metrics", metrics_text(record.metrics)
    yield "forward", _forward_text(record.metrics)
    for decision in decisions[-1:]:
        yield "gate", f"decision {decision.number}, {decision.decision}: {decision.reason}"
        yield from (("", line) for line in gate_lines(decision))
    yield "libraries", ", ".join(f"{name} {version}" for name, version in sorted(record.libraries.items())) or "-"
    module, serving = shown["module"], shown["serving"]
    yield "module", f"{module['name']}@{module['version']}, {module['digest']}" if module else "not published"
    if module:
        proof = module["proof"]
        counts = ", ".join(f"{name} {value}" for name, value in proof.items()) if proof else "none"
        yield "proof", counts
    yield "serving", f"{serving['state']}: {serving['explanation']}" if serving else "not known: no cluster is named"


def _feature(name: str, categories: dict[str, tuple[str, ...]]) -> str:
    return f"{name} ({', '.join(categories[name])})" if name in categories else name


def _pairs(parameters: Any) -> list[str]:
    from wasmline.documents import plain

    return [f"{name} {value}" for name, value in plain(parameters).items()]


def metrics_text(metrics: Metrics) -> str:
    """Return metrics as one line."""
    return (
        f"RMSE {metrics.rmse:.3f}, MAE {metrics.mae:.3f}, R² {metrics.r2:.3f}, mean predictor {metrics.mean_rmse:.3f}, "
        f"linear predictor {_number(metrics.linear_rmse)} ({metrics.rows:,} rows)"
    )


def _forward_text(metrics: Metrics) -> str:
    rows = f" on the {metrics.forward_rows:,} newest rows" if metrics.forward_rows else ""
    return f"RMSE {_number(metrics.forward_rmse)}{rows}"


def gate_lines(decision: Promotion) -> Iterator[str]:
    """Yield the figures of a decision, a line for each comparison with the champion."""
    compared = {"held out": decision.held_out, **decision.segments, "forward": decision.forward}
    for name, each in compared.items():
        if each:
            yield (
                f"{name}: RMSE {each.rmse:.3f}, champion {each.champion_rmse:.3f}, ratio {_ratio_text(each)} "
                f"({each.rows:,} rows)"
            )


def _ratio_text(compared: ErrorComparison | None) -> str:
    if compared is None or compared.ratio is None:
        return "not tested"
    ratio = compared.ratio
    return f"{ratio.low:.4f} to {ratio.high:.4f} at {ratio.confidence:.4g}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def history_text(decisions: Sequence[Promotion]) -> str:
    """Return decisions as a table."""
    heads = ["NUMBER", "TIME", "DECISION", "VERSION", "BEFORE", "RMSE", "RMSE BEFORE", "RATIO", "LINEAR", "FORWARD"]
    rows = [[*heads, "REFUSAL", "BY", "JOB RUN", "REASON"]]
    for each in decisions:
        before = each.champion_metrics
        rows.append(
            [
                str(each.number),
                moment(each.decided_ms),
                each.decision,
                each.version,
                each.champion or "-",
                f"{each.metrics.rmse:.3f}",
                _number(before.rmse if before else None),
                _ratio_text(each.held_out) if each.held_out else "-",
                _number(each.metrics.linear_rmse),
                _number(each.metrics.forward_rmse),
                bounded_line(each.refusal) or "-",
                bounded_line(each.by) or "-",
                bounded_line(each.run) or "-",
                bounded_line(each.reason),
            ]
        )
    return aligned(rows)


def comparison_text(compared: ModelComparison) -> str:
    """Return a comparison: the metrics side by side, and what differs in the trainings."""
    first, second = compared.metrics
    names = ("rmse", "mae", "r2", "mean_rmse", "linear_rmse", "forward_rmse")
    rows = [["", *compared.versions]]
    rows += [[name, _number(getattr(first, name)), _number(getattr(second, name))] for name in names]
    rows += [["rows", f"{first.rows:,}", f"{second.rows:,}"]]
    lines = [aligned(rows)]
    if not compared.comparable:
        lines.append("not comparable: each was measured on the holdout of its own training, and these differ")
    elif compared.decision is not None:
        lines.append(f"measured on the same rows for decision {compared.decision}")
    else:
        lines.append("measured on the same rows")
    if last := compared.last:
        lines.append(bounded_line(f"decision {last.number}, {last.decision}: {last.version} beside {last.champion}"))
        lines += [f"  {bounded_line(line)}" for line in gate_lines(last)]
    for path, values in compared.differences.items():
        left, right = (bounded_line(json.dumps(value, ensure_ascii=False)) for value in values)
        lines.append(f"{bounded_line(path)}: {left} | {right}")
    if not compared.differences:
        lines.append("the trainings do not differ")
    return "\n".join(lines)

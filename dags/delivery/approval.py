"""Formats a challenger for the approval, and reads the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from delivery import formatting
from wasmline.training import Decision, Metrics

PROMOTE, KEEP = "Promote", "Keep the live model"

_MARKUP = re.compile(r"[\\`*_~!|<>&\[\]:.@]")
"""Characters that begin a cell, emphasis, code, a link, an image or an entity in the Markdown of Airflow's UI."""


def approval_text(trained: Mapping[str, Any], why: str) -> str:
    """Return Markdown with both errors, on all rows, on each segment and on the newest records."""
    decision, metrics = msgspec.convert(trained["decision"], Decision), msgspec.convert(trained["metrics"], Metrics)
    champion = f"{trained['model']}@{trained['champion']}" if trained["champion"] else "no live model"
    error = formatting.error
    facts = [
        f"**{trained['model']}@{trained['version']}** beside {champion}: {_literal(decision.reason)}.",
        f"Trained because: {_literal(why)}.",
        f"RMSE {error(metrics.rmse)}; mean predictor {error(metrics.mean_rmse)}, linear {error(metrics.linear_rmse)}.",
        f"Forward error {error(metrics.forward_rmse)}, on the newest records by a model of those before.",
    ]
    rows = formatting.comparisons(decision)
    head = [("on", "new model", "live model", "ratio", "rows"), ("---",) * 5]
    table = (
        "\n".join(f"| {_literal(name)} | {' | '.join(figures)} |" for name, *figures in [*head, *rows]) if rows else ""
    )
    return "\n\n".join(filter(None, [*facts, table]))


def refusal(answer: Mapping[str, Any] | None) -> str:
    """Return why a model was not approved; empty if it was, or if no approval was asked for."""
    if answer is None or answer["chosen_options"] == [PROMOTE]:
        return ""
    name = approver(answer)
    return f"not approved by {name}" if name else "not approved in time"


def approver(answer: Mapping[str, Any] | None) -> str:
    """Return the name of the user who answered; empty without an answer."""
    user = answer.get("responded_by_user") if answer else None
    return str(user["name"]) if user else ""


def _literal(text: str) -> str:
    """Return a text without markup: names of segments are values of records."""
    return _MARKUP.sub(r"\\\g<0>", text)

"""Finds the record of a decision in the decisions on a model, or makes the next one; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wasmline.errors import Conflict
from wasmline.training.promotion_record import Promotion

USER = "user"
"""The refusal of a model that a user did not approve."""


def own_decision(history: Sequence[Promotion], decided: Promotion) -> Promotion | None:
    """Return the decision that ``decided`` repeats: the last of its run on its version.

    None if a user thinks again: then one of both is a user's refusal. Raises Conflict if the version that the run made
    the champion was replaced: its decision is not repeated.
    """
    made = [each for each in history if each.run and _identity(each) == _identity(decided)]
    if not made or (made[-1].refusal == USER) != (decided.refusal == USER):
        return None
    own = made[-1]
    changed = next((each for each in history[own.number :] if each.decision != "keep"), None)
    if changed and own.decision != "keep":
        raise conflict(
            decided,
            f"decision {changed.number} followed decision {own.number} of this run, and {history[-1].live} is live. "
            "Nothing was recorded: look at the history, and start another run",
        )
    return own


def next_decision(history: Sequence[Promotion], decided: Promotion) -> Promotion:
    """Return ``decided`` as it follows the last decision: see ``PromotionLog.append``. Raises Conflict."""
    last = history[-1] if history else None
    live = last.live if last else None
    decided = replace(decided, number=len(history) + 1)
    if decided.decision == "keep" and decided.refusal == USER and decided.version == live:
        raise conflict(
            decided, f"{live} is live already: to take it back, run wasmline models rollback {decided.model}"
        )
    if live == decided.champion:
        return decided
    if decided.decision == "keep":
        return _beside(live, decided)
    raise conflict(
        decided,
        f"{live or 'nothing'} is live, not {decided.champion or 'nothing'}: nothing was recorded. Compare "
        f"{decided.version} with it, and decide or ask again",
    )


def conflict(decided: Promotion, what: str) -> Conflict:
    """Return the error of a decision that cannot be recorded."""
    return Conflict(f"model {decided.model}: {what}", name=decided.model, generation=None)


def _identity(decision: Promotion) -> tuple[str, str, bool]:
    """Return what a decision and its repetition by the same run have in common."""
    return decision.run, decision.version, decision.decision == "rollback"


def _beside(live: str | None, kept: Promotion) -> Promotion:
    """Return a keep beside the live champion, without the figures beside another."""
    return replace(
        kept,
        champion=live,
        champion_metrics=None,
        held_out=None,
        segments={},
        forward=None,
        reason=f"{kept.reason} (compared with {kept.champion or 'nothing'}, before {live or 'nothing'} was live)",
    )

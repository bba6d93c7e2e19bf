"""Decides on a stored model version: compares it with the model's champion, and records decisions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from wasmline.errors import Conflict
from wasmline.training.champion_comparison import MeasuredModel, compare_with_champion
from wasmline.training.evaluate import Metrics
from wasmline.training.fitted_model import FittedModel
from wasmline.training.gate import Decision, GatePolicy
from wasmline.training.model_registry import GATE_SPEC_VERSION, ModelRegistry
from wasmline.training.promotion_log import PromotionLog
from wasmline.training.promotion_record import Promotion

log = logging.getLogger(__name__)

MAX_DECISIONS = 5
"""Decisions of one run on one version, each on the champion that is live then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDecision:
    """The decision on a version beside ``champion``, with the champion's metrics; None: there was no champion."""

    champion: str | None
    champion_metrics: Metrics | None
    decision: Decision


def decide_on(
    challenger: MeasuredModel, version: str, *, models: str, name: str, policy: GatePolicy
) -> VersionDecision:
    """Return the decision on a challenger, which is stored as ``version``, beside the current champion.

    A model that was rolled back is not promoted again. Raises the errors of PromotionLog and ModelRegistry, and
    TrainingError if the challenger's rows lack a feature of the champion.
    """
    registry, history = ModelRegistry(models), PromotionLog(models)
    champion = history.champion(name)
    metrics, decision = compare_with_champion(challenger, _fitted(registry, name, champion), policy)
    if decision.promote and (why := history.rolled_back(name, version)):
        decision = decision.rejected("rolled back", why)
    return VersionDecision(champion=champion, champion_metrics=metrics, decision=decision)


def promote(
    models: str,
    name: str,
    version: str,
    decision: Decision,
    *,
    champion: str | None,
    metrics: Metrics,
    champion_metrics: Metrics | None = None,
    policy: GatePolicy | None = None,
    run: str = "",
    by: str = "",
) -> Promotion:
    """Record a decision in the log of the registry at ``models``: see ``PromotionLog.append``.

    If another model was promoted since the decision to promote, the version is compared with that one, by ``policy``
    and on the rows that are stored beside it, and decided on anew, up to MAX_DECISIONS times. A keep stays one. Raises
    Conflict after those, without a ``policy``, for a version that was stored without its rows, after a rollback since
    the decision, and if the run decided before.
    """
    history = PromotionLog(models)
    record = partial(history.append, name, version, metrics=metrics, run=run, by=by)
    decided = VersionDecision(champion=champion, champion_metrics=champion_metrics, decision=decision)
    for _ in range(MAX_DECISIONS - 1):
        try:
            return record(decided.decision, champion=decided.champion, champion_metrics=decided.champion_metrics)
        except Conflict as conflict:
            if policy is None or not decided.decision.promote:
                raise
            if not _may_decide_anew(history.history(name), decided.champion, run, version):
                raise
            challenger = _measured(ModelRegistry(models), name, version)
            if challenger is None:
                raise
            log.info("%s@%s is compared anew: %s", name, version, conflict)
        decided = decide_on(challenger, version, models=models, name=name, policy=policy)
    return record(decided.decision, champion=decided.champion, champion_metrics=decided.champion_metrics)


def _may_decide_anew(history: Sequence[Promotion], champion: str | None, run: str, version: str) -> bool:
    """Return whether no rollback came since ``champion`` was live, and the run has not decided on the version."""
    has_decided = any(run and (each.run, each.version) == (run, version) for each in history)
    since = max((each.number for each in history if each.live == champion), default=0)
    return not has_decided and all(each.decision != "rollback" for each in history[since:])


def _fitted(registry: ModelRegistry, name: str, version: str | None) -> FittedModel | None:
    if version is None:
        return None
    stored, data = registry.load(name, version)
    return FittedModel(data=data, layout=stored.record.layout, dataset=stored.record.dataset)


def _measured(registry: ModelRegistry, name: str, version: str) -> MeasuredModel | None:
    """Return a stored model with the rows it was measured on, None if it was stored without."""
    stored, data = registry.load(name, version)
    record = stored.record
    if record.spec_version != GATE_SPEC_VERSION or record.held_out_rows == 0:
        return None
    return MeasuredModel(
        model=FittedModel(data=data, layout=record.layout, dataset=record.dataset),
        metrics=record.metrics,
        held_out=registry.held_out(name, version),
        forward=registry.forward(name, version),
    )

"""The gate: decides whether a newly trained model may replace the live one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import numpy as np
import numpy.typing as npt

from wasmline.job_specs import TrainSpec
from wasmline.training.evaluate import Metrics
from wasmline.training.feature_encoding import Vector
from wasmline.training.paired_bootstrap import Interval, ratio_interval

Mask = npt.NDArray[np.bool_]

MIN_ROWS = 50
"""Fewer held-out rows, in all or of a segment, or fewer forward rows, are reported and not tested.

Of two equally good models, an interval at 99 % calls one worse in 0.7 % of cases on 50 rows, in 2.3 % on 12 rows; it
should in 0.5 %.
"""

TYPICAL_QUANTILE = 0.95
"""Squared errors above this quantile of the champion's count as that much where outliers must not decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The settings of the gate, as in TrainSpec; ``seed`` draws the resamples."""

    margin: float = 0.0
    confidence: float = 0.99
    segments: tuple[str, ...] = ()
    seed: int = 7

    @classmethod
    def of(cls, spec: TrainSpec) -> GatePolicy:
        """Return the settings of a training."""
        return cls(margin=spec.margin, confidence=spec.confidence, segments=spec.segments, seed=spec.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedErrors:
    """Squared errors of the challenger and the champion on the same rows, in the same order."""

    challenger: Vector
    champion: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionErrors:
    """Errors beside those of the champion: on held-out rows, of which ``segments`` selects some, and forward."""

    held_out: PairedErrors
    segments: Mapping[str, Mask] = field(default_factory=dict)
    forward: PairedErrors | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorComparison:
    """RMSEs on the same rows, and the interval of the challenger's divided by the champion's; None: not tested."""

    rows: int
    rmse: float
    champion_rmse: float
    ratio: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision on a challenger, with its reason in one sentence and its figures.

    ``refusal`` is the check that the challenger did not pass: ``mean``, ``linear``, ``equal``, ``noise``,
    ``segment FIELD=VALUE``, ``forward``, ``outliers``, ``older``, ``rolled back`` or ``user``, who did not approve it;
    empty if it passed all. ``held_out``, ``segments`` and ``forward`` are None or empty without a champion.
    """

    decision: Literal["promote", "keep"]
    reason: str
    refusal: str = ""
    held_out: ErrorComparison | None = None
    segments: dict[str, ErrorComparison] = field(default_factory=dict)
    forward: ErrorComparison | None = None

    @property
    def promote(self) -> bool:
        return self.decision == "promote"

    def rejected(self, refusal: str, reason: str) -> Decision:
        """Return the decision to keep the champion, for a reason in front of this one's."""
        return replace(self, decision="keep", refusal=refusal, reason=f"{reason}. {self.reason}")


def decide(challenger: Metrics, policy: GatePolicy, errors: ChampionErrors | None) -> Decision:
    """Return the decision on a challenger; pure. ``errors`` are None without a champion.

    The challenger must beat the mean of the training rows and a linear model of them. The interval of its RMSE divided
    by the champion's must end below ``1 - margin``: a positive margin requires an improvement, a negative one accepts a
    slightly worse model with newer data. No segment's interval, at a confidence that all segments share, and not that
    of the forward errors may lie above 1, and neither may that of the errors without their outliers, which a negative
    margin permits to that extent. A model with the same errors is not promoted.
    """
    held_out = _compare(errors.held_out, policy.confidence, policy.seed) if errors else None
    forward = _compare(errors.forward, policy.confidence, policy.seed) if errors and errors.forward else None
    segments = _compare_segments(errors, policy) if errors else {}
    refusals = _refusals_by_baselines(challenger)
    reason = f"RMSE {challenger.rmse:.3f} against {challenger.mean_rmse:.3f} of the mean; no champion yet"
    if errors and held_out:
        reason = f"{_figures(held_out)}: better beyond noise"
        refusals = chain(refusals, _refusals(errors, held_out, segments, forward, policy))
    refusal, reason = next(refusals, ("", reason))
    if errors and (share := _largest_share(errors.held_out.challenger)) > 0.5:
        reason += f"; one row has {100 * share:.0f} % of the squared error: bound the target in the condition"
    return Decision(
        decision="keep" if refusal else "promote",
        reason=reason,
        refusal=refusal,
        held_out=held_out,
        segments=segments,
        forward=forward,
    )


def _refusals_by_baselines(challenger: Metrics) -> Iterator[tuple[str, str]]:
    """Yield the baselines that the challenger does not beat, each with the words for it."""
    for name, baseline in (("mean", challenger.mean_rmse), ("linear", challenger.linear_rmse)):
        if baseline is not None and not challenger.rmse < baseline:
            yield name, f"RMSE {challenger.rmse:.3f} is no better than the {name} predictor's, {baseline:.3f}"


def _refusals(
    errors: ChampionErrors,
    held_out: ErrorComparison,
    segments: Mapping[str, ErrorComparison],
    forward: ErrorComparison | None,
    policy: GatePolicy,
) -> Iterator[tuple[str, str]]:
    """Yield the checks beside the champion that the challenger does not pass, each with the words for it."""
    limit = 1 - policy.margin
    if np.array_equal(errors.held_out.challenger, errors.held_out.champion):
        yield "equal", f"{_figures(held_out)}: equal on each row"
    if held_out.ratio is None:
        yield "noise", f"{_figures(held_out)}: {MIN_ROWS} rows are needed to tell it from noise"
    elif not held_out.ratio.high < limit:
        yield "noise", f"{_figures(held_out)}: not below {limit:.4f} beyond noise"
    for name, each in segments.items():
        if _is_worse(each):
            yield f"segment {name}", f"worse on {name} beyond noise: {_figures(each)}"
    if forward and _is_worse(forward):
        yield "forward", f"worse on the newest records beyond noise: {_figures(forward)}"
    typical = _compare(_without_outliers(errors.held_out), policy.confidence, policy.seed)
    if _is_worse(typical, max(limit, 1)):
        yield "outliers", f"worse but for the largest errors, beyond noise: {_figures(typical)}"


def _is_worse(comparison: ErrorComparison, limit: float = 1) -> bool:
    return comparison.ratio is not None and comparison.ratio.low > limit


def _without_outliers(errors: PairedErrors) -> PairedErrors:
    most = np.quantile(errors.champion, TYPICAL_QUANTILE)
    return PairedErrors(challenger=np.minimum(errors.challenger, most), champion=np.minimum(errors.champion, most))


def _largest_share(errors: Vector) -> float:
    """Return the share of one row, at most, of the sum of squared errors."""
    total = float(errors.sum())
    return float(errors.max()) / total if total else 0.0


def _compare_segments(errors: ChampionErrors, policy: GatePolicy) -> dict[str, ErrorComparison]:
    tested = sum(int(rows.sum()) >= MIN_ROWS for rows in errors.segments.values())
    confidence = 1 - (1 - policy.confidence) / max(tested, 1)
    found = {}
    for name, rows in errors.segments.items():
        part = PairedErrors(challenger=errors.held_out.challenger[rows], champion=errors.held_out.champion[rows])
        found[name] = _compare(part, confidence, policy.seed)
    return found


def _compare(errors: PairedErrors, confidence: float, seed: int) -> ErrorComparison:
    """Return the figures of at least one row."""
    rows = len(errors.challenger)
    enough = rows >= MIN_ROWS
    return ErrorComparison(
        rows=rows,
        rmse=float(np.mean(errors.challenger)) ** 0.5,
        champion_rmse=float(np.mean(errors.champion)) ** 0.5,
        ratio=ratio_interval(errors.challenger, errors.champion, confidence=confidence, seed=seed) if enough else None,
    )


def _figures(found: ErrorComparison) -> str:
    ratio = f", ratio {found.ratio.low:.4f} to {found.ratio.high:.4f}" if found.ratio else ""
    return f"RMSE {found.rmse:.3f}, champion {found.champion_rmse:.3f} on {found.rows:,} rows{ratio}"

"""The gate: decides whether a newly trained model may replace the live one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wasmline.errors import TrainingError
from wasmline.training.evaluate import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision on a challenger, with its reason in one sentence."""

    decision: Literal["promote", "keep"]
    reason: str

    @property
    def promote(self) -> bool:
        return self.decision == "promote"


def compare(champion: Metrics | None, challenger: Metrics, margin: float = 0.0) -> Decision:
    """Return the decision on two models that were measured on the same holdout; pure.

    The challenger must beat the mean of the training rows, and its RMSE must be at most ``1 - margin`` times the
    champion's: a positive margin requires an improvement, a negative one accepts a slightly worse model with newer
    data. An equal model is not promoted. Raises TrainingError for different holdouts.
    """
    if not challenger.rmse < challenger.mean_rmse:
        return keep(f"RMSE {challenger.rmse:.3f} is no better than predicting the mean ({challenger.mean_rmse:.3f})")
    if champion is None:
        return _promote(f"RMSE {challenger.rmse:.3f} against {challenger.mean_rmse:.3f} of the mean; no champion yet")
    if champion.holdout != challenger.holdout:
        raise TrainingError("the models were measured on different rows and cannot be compared: evaluate both again")
    limit = champion.rmse * (1 - margin)
    facts = f"RMSE {challenger.rmse:.3f}, champion {champion.rmse:.3f}, margin {margin:.2%}"
    if challenger.rmse > limit:
        return keep(f"{facts}: above the limit of {limit:.3f}")
    if challenger.rmse == champion.rmse:
        return keep(f"{facts}: equal on {challenger.rows} held-out rows")
    return _promote(f"{facts}: within the limit of {limit:.3f}")


def keep(reason: str) -> Decision:
    """Return the decision that the champion stays."""
    return Decision(decision="keep", reason=reason)


def _promote(reason: str) -> Decision:
    return Decision(decision="promote", reason=reason)

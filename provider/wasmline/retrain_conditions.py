"""The conditions for training a model again."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from wasmline.errors import InvalidTrainSpec

LIMITS = ("new_records", "max_psi", "max_error_growth", "max_age_hours")
"""The conditions, each with its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainConditions:
    """The conditions for training ``model`` again on ``topic``; one that is None is not tested, and any one suffices.

    models: the URL of the registry of models, with the recorded slices.
    min_new_records: fewer records since the newest slice are not trained on, whatever else holds.
    new_records: at least as many records since the newest slice.
    max_psi: the population stability index of a feature, of new records beside the champion's held-out rows, is above.
    max_error_growth: the RMSE of labelled predictions is above the champion's forward error by more than this share;
        above that on its held-out rows if it has no forward error.
        Predictions are records of ``predictions``, labels those of ``labels``, by default of ``topic``. Of an identity,
        the first of each counts. Predictions younger than ``label_delay_seconds``, as a label may take, do not.
    max_age_hours: the champion was trained, and the newest slice recorded, longer ago.
    cooldown_seconds: the least time from a recorded slice or an event to the next event. A condition that stays met,
        because no slice is recorded for it or the champion is kept, waits twice as long after each event, up to a day.
    """

    model: str
    models: str
    topic: str
    min_new_records: int = 1
    new_records: int | None = None
    max_psi: float | None = None
    max_error_growth: float | None = None
    max_age_hours: float | None = None
    predictions: str | None = None
    labels: str | None = None
    label_delay_seconds: float = 0.0
    cooldown_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in (*LIMITS, "min_new_records", "label_delay_seconds", "cooldown_seconds"):
            limit = getattr(self, name)
            if limit is not None and not 0 <= limit < inf:  # nor is NaN
                raise _invalid(name, f"must be at least 0 and finite, got {limit}")
        if all(getattr(self, name) is None for name in LIMITS):
            raise _invalid("new_records", f"and all other conditions are missing: set one of {', '.join(LIMITS)}")
        if self.max_error_growth is not None and self.predictions is None:
            raise _invalid("predictions", "is missing: the live error is that of predictions")


def _invalid(name: str, fault: str) -> InvalidTrainSpec:
    return InvalidTrainSpec(f"the retraining's {name} {fault}", field=name)

"""Verifies predictions: one for each feature, under its key, equal to the bit to what XGBoost predicts with the model.

Pure: records and a model in, counts out. A prediction's feature is the record that its provenance names.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from delivery.verification import MAX_OFFENDERS
from wasmline.documents import plain
from wasmline.errors import VerificationFailed
from wasmline.training import ModelRecord
from wasmline.training.boosting import predict

Coordinates = tuple[int, int]

_TYPES = {"double": pa.float64(), "bigint": pa.int64(), "string": pa.string()}


class ScoredFeature(NamedTuple):
    """A record of the features topic, which was to be scored."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Prediction(NamedTuple):
    """A record of the predictions topic; its provenance names the feature, ``source``, and the ``model``."""

    source: Coordinates | None
    model: str | None
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The counts of verified predictions. ``rmse``: of the ``held_out`` rows' predictions, in the target's unit."""

    model: str
    digest: str
    predictions: int
    held_out: int
    rmse: float


def without_earlier_champions(
    features: Iterable[ScoredFeature],
    predictions: Iterable[Prediction],
    *,
    reference: str,
    ends_before: Mapping[str, int],
) -> tuple[list[ScoredFeature], list[Prediction]]:
    """Leave out what another model than ``reference`` predicted from features before ``ends_before``, by partition."""
    kept, earlier = [], set()
    for each in predictions:
        if each.source and each.model != reference and each.source[1] < ends_before[str(each.source[0])]:
            earlier.add(each.source)
        else:
            kept.append(each)
    return [each for each in features if (each.partition, each.offset) not in earlier], kept


def verify_predictions(
    features: Sequence[ScoredFeature],
    predictions: Iterable[Prediction],
    *,
    model: bytes,
    record: ModelRecord,
    reference: str,
    digest: str,
    held_out: Mapping[Any, float],
) -> ServedModel:
    """Return the counts of a run in which each feature has one prediction, that of XGBoost.

    ``reference`` is the model as provenance names it, ``held_out`` the target of each held-out identity. Raises
    VerificationFailed with the first offenders.
    """
    expected = {(each.partition, each.offset): each for each in features}
    values = _scores(model, record, [each.value for each in features])
    scores = dict(zip(expected, values, strict=True))
    offences: dict[str, list[str]] = defaultdict(list)
    served: dict[Coordinates, float] = {}
    for prediction in predictions:
        at = prediction.source
        if at is None or at not in expected:
            offences["prediction of no feature"].append(repr(prediction.value))
            continue
        if at in served:
            offences["second prediction"].append(_place(at))
        served[at] = _check(offences, at, prediction, expected[at], record, scores[at], reference)
    offences["feature without a prediction"] += [_place(at) for at in expected if at not in served]
    errors = _errors(expected, served, record.dataset.identity, held_out)
    facts = ServedModel(
        model=reference,
        digest=digest,
        predictions=len(served),
        held_out=len(errors),
        rmse=float(np.mean(np.square(errors))) ** 0.5 if errors else float("nan"),
    )
    _require_none(offences, facts)
    return facts


def _check(
    offences: Mapping[str, list[str]],
    at: Coordinates,
    prediction: Prediction,
    feature: ScoredFeature,
    record: ModelRecord,
    score: np.float32,
    reference: str,
) -> float:
    """Compare one prediction with its feature and its score; return the predicted value."""
    identity = record.dataset.identity
    document, source = json.loads(prediction.value or b"null"), json.loads(feature.value or b"null")
    if prediction.key != feature.key or document[identity] != source[identity]:
        offences["prediction under another key or identity"].append(_place(at))
    if prediction.model != reference:
        offences[f"prediction not by {reference}"].append(f"{_place(at)}: by {prediction.model}")
    found = np.float32(document["prediction"])
    if found.view(np.uint32) != score.view(np.uint32):
        offences["prediction that is not XGBoost's"].append(f"{_place(at)}: {found!r} instead of {score!r}")
    return float(found)


def _scores(model: bytes, record: ModelRecord, values: Sequence[bytes | None]) -> Sequence[np.float32]:
    """Return XGBoost's prediction of each record."""
    documents = [json.loads(value or b"null") for value in values]
    types = {name: _TYPES[record.dataset.fields[name]] for name in record.layout.features}
    table = pa.table({name: pa.array([each.get(name) for each in documents], its) for name, its in types.items()})
    return list(predict(model, record.layout.matrix(table), record.columns).astype(np.float32))


def _errors(
    features: Mapping[Coordinates, ScoredFeature],
    served: Mapping[Coordinates, float],
    identity: str,
    held_out: Mapping[Any, float],
) -> list[float]:
    """Return the error of each held-out row's prediction; the first record of an identity counts, as in training."""
    errors: dict[Any, float] = {}
    for at in sorted(served):
        name = json.loads(features[at].value or b"null")[identity]
        if name in held_out and name not in errors:
            errors[name] = held_out[name] - served[at]
    return list(errors.values())


def _require_none(offences: Mapping[str, list[str]], facts: ServedModel) -> None:
    found = {kind: places for kind, places in offences.items() if places}
    if not found:
        return
    lines = [f"{len(places)} {kind}, first {'; '.join(places[:MAX_OFFENDERS])}" for kind, places in found.items()]
    raise VerificationFailed(
        f"{facts.predictions} predictions do not add up: {'. '.join(lines)}",
        report={
            **plain(facts),
            "offences": {
                kind: {"count": len(places), "first": places[:MAX_OFFENDERS]} for kind, places in found.items()
            },
        },
    )


def _place(at: Coordinates) -> str:
    return f"partition {at[0]} offset {at[1]}"

"""What is wrong with predictions is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from delivery.prediction_verification import (
    Prediction,
    ScoredFeature,
    ServedModel,
    verify_predictions,
    without_earlier_champions,
)
from support.eta_model import eta_model, eta_record, eta_rows, matrix
from wasmline.errors import VerificationFailed
from wasmline.training.boosting import predict

ROWS = 200
MODEL = "eta@1.2.0"


@pytest.fixture(scope="module")
def features() -> list[ScoredFeature]:
    documents = [{"id": str(number), **row} for number, row in enumerate(eta_rows()[:ROWS])]
    return [
        ScoredFeature(number % 2, number // 2, str(number).encode(), json.dumps(document).encode())
        for number, document in enumerate(documents)
    ]


@pytest.fixture(scope="module")
def model() -> bytes:
    return eta_model(eta_rows(), eta_record())


@pytest.fixture(scope="module")
def predictions(features: list[ScoredFeature], model: bytes) -> list[Prediction]:
    values = predict(model, matrix(eta_rows()[:ROWS]), eta_record().columns)
    return [
        Prediction(
            (each.partition, each.offset),
            MODEL,
            each.key,
            json.dumps({"id": str(number), "prediction": value}).encode(),
        )
        for number, (each, value) in enumerate(zip(features, values.tolist(), strict=True))
    ]


def verified(features: list[ScoredFeature], predictions: list[Prediction], model: bytes) -> ServedModel:
    return verify_predictions(
        features,
        predictions,
        model=model,
        record=eta_record(),
        reference=MODEL,
        digest="sha256:m",
        held_out={"3": 20.0, "8": 10.0, "gone": 1.0},
    )


def test_predictions_that_are_xgboosts_are_counted_and_measured_on_the_held_out_rows(
    features: list[ScoredFeature], predictions: list[Prediction], model: bytes
) -> None:
    served = verified(features, predictions, model)
    third, eighth = (json.loads(predictions[place].value or b"")["prediction"] for place in (3, 8))
    rmse = (((20.0 - third) ** 2 + (10.0 - eighth) ** 2) / 2) ** 0.5
    assert served == ServedModel(model=MODEL, digest="sha256:m", predictions=ROWS, held_out=2, rmse=rmse)


def changed(**values: Any) -> Callable[[list[Prediction]], list[Prediction]]:
    return lambda found: [*found[:4], found[4]._replace(**values), *found[5:]]


def nearly(found: list[Prediction]) -> list[Prediction]:
    document = json.loads(found[4].value or b"")
    document["prediction"] = float(np.nextafter(np.float32(document["prediction"]), np.float32(99)))
    return changed(value=json.dumps(document).encode())(found)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda found: found[:-1], "1 feature without a prediction, first partition 1 offset 99"),
        (lambda found: [*found, found[0]], "1 second prediction, first partition 0 offset 0"),
        (changed(source=None), "prediction of no feature"),
        (changed(source=(7, 7)), "prediction of no feature"),
        (changed(key=b"other"), "prediction under another key or identity, first partition 0 offset 2"),
        (changed(value=b'{"id":"other","prediction":1}'), "prediction under another key or identity"),
        (changed(model="eta@1.1.0"), "prediction not by eta@1.2.0, first partition 0 offset 2: by eta@1.1.0"),
        (nearly, "prediction that is not XGBoost's, first partition 0 offset 2"),
    ],
)
def test_a_wrong_prediction_is_named(
    change: Callable[[list[Prediction]], list[Prediction]],
    named: str,
    features: list[ScoredFeature],
    predictions: list[Prediction],
    model: bytes,
) -> None:
    with pytest.raises(VerificationFailed, match=named):
        verified(features, change(predictions), model)


def test_features_of_earlier_runs_may_have_predictions_of_an_earlier_champion(
    features: list[ScoredFeature], predictions: list[Prediction], model: bytes
) -> None:
    def of_this_run(ends_before: dict[str, int]) -> tuple[list[ScoredFeature], list[Prediction]]:
        first = [each._replace(model="eta@1.1.0") for each in predictions[:10]]
        return without_earlier_champions(
            features, [*first, *predictions[10:]], reference=MODEL, ends_before=ends_before
        )

    assert verified(*of_this_run({"0": 5, "1": 5}), model).predictions == ROWS - 10
    with pytest.raises(VerificationFailed, match=r"1 prediction not by eta@1\.2\.0"):
        verified(*of_this_run({"0": 5, "1": 4}), model)
    assert len(of_this_run({"0": 5, "1": 5})[1]) == ROWS - 10
    assert without_earlier_champions(features, predictions, reference=MODEL, ends_before={"0": 99, "1": 99}) == (
        features,
        predictions,
    )

import numpy as np
import pytest

from wasmline.errors import TrainingError
from wasmline.training.boosting import TreeParameters, fit, predict
from wasmline.training.feature_encoding import Matrix, Vector

PARAMETERS = TreeParameters(trees=20, depth=3, learning_rate=0.3, seed=7)
COLUMNS = ("a", "b=1")


@pytest.fixture
def rows() -> tuple[Matrix, Vector]:
    matrix = np.random.default_rng(1).random((600, 2)).astype(np.float32)
    matrix[::50, 0] = np.nan
    return matrix, np.where(matrix[:, 1] > 0.5, 30.0, 20.0)


def test_the_same_rows_give_the_same_bytes(rows: tuple[Matrix, Vector]) -> None:
    assert fit(*rows, COLUMNS, PARAMETERS) == fit(rows[0].copy(), rows[1].copy(), COLUMNS, PARAMETERS)


def test_a_step_is_learned_and_predicted_from_the_stored_bytes(rows: tuple[Matrix, Vector]) -> None:
    predictions = predict(fit(*rows, COLUMNS, PARAMETERS), rows[0], COLUMNS)
    np.testing.assert_allclose(predictions, rows[1], atol=0.1)


def test_columns_in_another_order_are_refused(rows: tuple[Matrix, Vector]) -> None:
    model = fit(*rows, COLUMNS, PARAMETERS)
    with pytest.raises(TrainingError, match="cannot predict"):
        predict(model, rows[0], ("b=1", "a"))


def test_bytes_that_are_no_model_are_refused(rows: tuple[Matrix, Vector]) -> None:
    with pytest.raises(TrainingError, match="cannot predict"):
        predict(b'{"learner": {}}', rows[0], COLUMNS)


def test_a_target_that_is_not_finite_is_refused(rows: tuple[Matrix, Vector]) -> None:
    with pytest.raises(TrainingError, match="XGBoost rejected 600 rows"):
        fit(rows[0], np.full(600, np.nan), COLUMNS, PARAMETERS)


def test_a_column_that_xgboost_cannot_name_is_refused(rows: tuple[Matrix, Vector]) -> None:
    for name in ("b=<1", "b=[1]", "a"):  # the last repeats the first column
        with pytest.raises(TrainingError, match="XGBoost rejected 600 rows of a, "):
            fit(*rows, ("a", name), PARAMETERS)

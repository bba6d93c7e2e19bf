import numpy as np
import pyarrow as pa
import pytest

from wasmline.errors import TrainingError
from wasmline.training import FeatureLayout

LAYOUT = FeatureLayout(features=("kind", "km"), categories={"kind": ("a", "b")})


def test_columns_follow_the_features_and_the_listed_values() -> None:
    assert LAYOUT.columns == ("kind=a", "kind=b", "km")


def test_values_become_ones_zeros_and_missing_ones_nan() -> None:
    table = pa.table({"km": [1, None, 3, 4], "kind": ["b", "a", None, "unheard of"], "more": [0, 0, 0, 0]})
    nan = np.nan
    expected = [[0, 1, 1], [1, 0, nan], [nan, nan, 3], [0, 0, 4]]
    matrix = LAYOUT.matrix(table)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix, np.array(expected, dtype=np.float32))


def test_integers_beyond_double_precision_are_rounded() -> None:
    table = pa.table({"km": [2**53 + 1, -(2**63), 2**63 - 1, None]})
    matrix = FeatureLayout(features=("km",)).matrix(table)
    assert matrix[:3, 0].tolist() == [2.0**53, -(2.0**63), 2.0**63]
    assert np.isnan(matrix[3, 0])


def test_rows_without_a_feature_are_refused_naming_it() -> None:
    with pytest.raises(TrainingError, match="have no km"):
        LAYOUT.matrix(pa.table({"kind": ["a"]}))

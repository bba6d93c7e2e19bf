import pyarrow as pa
import pytest

from wasmline.training import Correlation, correlate


def test_a_number_has_pearson_and_a_text_the_share_of_variance_between_its_values() -> None:
    table = pa.table({"km": [1.0, 2.0, 3.0, None], "kind": ["a", "a", "b", None], "min": [2.0, 4.0, 6.0, 9.0]})
    km, kind = correlate(table, ("km", "kind"), "min", {"kind": ("a", "b")})
    assert km.pearson == pytest.approx(1.0)
    assert km.rows == 3
    assert kind.eta_squared == pytest.approx(6 / 8)
    assert (kind.means, kind.counts) == ({"a": 3.0, "b": 6.0}, {"a": 2, "b": 1})


def test_values_that_are_no_category_are_one_group_without_a_mean_of_its_own() -> None:
    kinds = ["a", "a", "x" * 1_000_000, *map(str, range(997))]
    table = pa.table({"kind": kinds, "min": [2.0, 4.0, *[9.0] * 998]})
    (kind,) = correlate(table, ("kind",), "min", {"kind": ("a", "b")})
    assert (kind.rows, kind.means, kind.counts) == (1_000, {"a": 3.0}, {"a": 2})
    assert kind.eta_squared == pytest.approx(1 - 2 / (2 + 2 * 998 * 36 / 1_000))


def test_what_is_not_defined_is_none() -> None:
    table = pa.table({"km": [1.0, 1.0], "kind": ["a", "b"], "min": [5.0, 5.0]})
    km, kind = correlate(table, ("km", "kind"), "min", {"kind": ()})
    assert km == Correlation(feature="km", rows=2)
    assert kind.eta_squared is None


def test_no_rows_correlate_with_nothing() -> None:
    table = pa.table(
        {"km": pa.array([], pa.float64()), "kind": pa.array([], pa.string()), "min": pa.array([], pa.float64())}
    )
    assert [found.rows for found in correlate(table, ("km", "kind"), "min", {"kind": ()})] == [0, 0]

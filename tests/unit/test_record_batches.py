"""Columns of headers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wasmline.record_batches import HEADERS, header_pairs, merged_headers, pair_column

PAIRS = st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))
ROWS = 4


@given(st.lists(PAIRS))
def test_a_column_of_headers_has_what_it_is_made_of(pairs: list[tuple[str, bytes | None]]) -> None:
    assert pair_column(pairs).equals(pa.array(pairs, HEADERS.value_type))


@given(st.lists(st.lists(st.tuples(st.integers(0, ROWS - 1), PAIRS), max_size=6), min_size=1, max_size=3))
def test_headers_are_merged_by_row_and_those_of_a_row_by_part(
    parts: list[list[tuple[int, tuple[str, bytes | None]]]],
) -> None:
    merged = merged_headers(
        ROWS,
        [(np.array([row for row, _ in part], np.int64), pair_column([pair for _, pair in part])) for part in parts],
    )
    merged.validate(full=True)
    assert merged.null_count == 0
    expected = [[pair for part in parts for owner, pair in part if owner == row] for row in range(ROWS)]
    assert [list(each) for each in header_pairs(merged)] == expected

"""How large a record is, as the batches of a real producer tell."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wasmline.pipeline.record_sizes import batch_bytes, oversize_outputs, spare_bytes
from wasmline.record_batches import OUTPUT_SCHEMA

FEW = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=70), FEW), max_size=3)
RECORDS = st.lists(st.tuples(FEW, FEW, HEADERS, st.integers(0, 1)), max_size=6)


def rows(records: list) -> pa.RecordBatch:  # type: ignore[type-arg]
    made = [
        {
            "row": 0,
            "output": output,
            "key": key,
            "value": value,
            "headers": [{"key": n, "value": v} for n, v in headers],
        }
        for key, value, headers, output in records
    ]
    return pa.RecordBatch.from_pylist(made, schema=OUTPUT_SCHEMA)


@given(RECORDS, st.integers(61, 700), st.integers(0, 3))
def test_the_rows_that_are_too_large_are_those_whose_own_size_is(records: list, limit: int, skipped: int) -> None:  # type: ignore[type-arg]
    sizes = [batch_bytes(key, value, headers) for key, value, headers, _ in records][skipped:]
    expected = {row: size for row, size in enumerate(sizes) if size > limit and records[skipped + row][3] == 1}
    outputs, limits = rows(records).slice(skipped), [None, limit]
    assert oversize_outputs(outputs, spare_bytes(outputs, limits), limits, "none") == expected

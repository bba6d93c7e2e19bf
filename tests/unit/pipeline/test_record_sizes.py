"""How large a record is, as the batches of a real producer tell."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wasmline import provenance
from wasmline.pipeline.record_sizes import batch_bytes, fitting_provenance, oversize_outputs, spare_bytes
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


@given(st.tuples(*[st.integers(0, 3_000)] * 4), st.integers(1, provenance.MAX_BYTES), st.integers(-200, 200))
def test_no_row_is_too_large_with_its_provenance(sizes: tuple[int, ...], added: int, spare: int) -> None:
    key, value, *others = (b"x" * size for size in sizes)
    headers, text = [("h", each) for each in others], b"p" * added
    size = batch_bytes(key, value, [*headers, (provenance.NAME, text)])
    outputs = rows([(key, value, headers, 0), (b"", b"", [], 1), (key, value, headers, 1)])
    fitting = fitting_provenance(pa.array([text] * 3, pa.binary()), outputs, [None, size + spare])
    unlimited, _, kept = fitting.is_valid().to_pylist()
    assert unlimited
    assert spare >= 0 if kept else spare < 100

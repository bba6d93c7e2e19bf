"""Rows of a dataset from usable rows, in Arrow alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from support.eta_spec import SPEC
from wasmline.training import Dataset, prepare_rows, rows_of
from wasmline.training.dataset_slice import of_slice
from wasmline.training.prepare import HELD_OUT, OFFSET, PARTITION, TIMESTAMP, TRANSFORM

VERSIONS = ("", "clean@1.0.0 0123456789ab", "clean@1.1.0 ba9876543210")


class Row(NamedTuple):
    partition: int
    offset: int
    identity: int
    transform: str

    @property
    def is_held_out(self) -> bool:
        return self.identity % 3 == 0

    @property
    def km(self) -> float:
        return self.partition * 100.0 + self.offset


def usable(rows: Sequence[Row], chunk_rows: int = 100) -> pa.Table:
    """Return sorted rows as ``usable_rows`` does."""
    table = pa.table(
        {
            PARTITION: pa.array([row.partition for row in rows], pa.int32()),
            OFFSET: pa.array([row.offset for row in rows], pa.int64()),
            TIMESTAMP: pa.array([1_000 + row.offset for row in rows], pa.int64()),
            TRANSFORM: pa.array([row.transform for row in rows], pa.string()).dictionary_encode(),
            HELD_OUT: pa.array([row.is_held_out for row in rows], pa.bool_()),
            "id": pa.array([f"id-{row.identity}" for row in rows], pa.string()),
            "km": pa.array([row.km for row in rows], pa.float64()),
        }
    )
    return pa.Table.from_batches(table.to_batches(max_chunksize=chunk_rows), table.schema)


ROWS = st.lists(
    st.builds(Row, st.integers(0, 2), st.integers(0, 12), st.integers(0, 6), st.sampled_from(VERSIONS)),
    unique_by=lambda row: row[:2],
).map(sorted)

RANGES = st.dictionaries(
    st.sampled_from("012"), st.tuples(st.integers(0, 13), st.integers(0, 13)).map(lambda ends: (min(ends), max(ends)))
)


def of_kilometres(offsets: dict[str, tuple[int, int]]) -> Dataset:
    spec = replace(SPEC, fields={"id": "string", "km": "double", "age": "double"}, features=("age",), target="km")
    return replace(of_slice(spec, topic_id="", offsets=offsets), fields={"id": "string", "km": "double"})


def fields(rows: Iterable[Row]) -> dict[str, list[object]]:
    identities, kilometres = columns((f"id-{row.identity}", row.km) for row in rows)
    return {"id": identities, "km": kilometres}


def columns(pairs: Iterable[tuple[object, object]]) -> list[list[object]]:
    listed = list(pairs)
    return [[one for one, _ in listed], [other for _, other in listed]]


@given(ROWS, RANGES, st.integers(1, 5))
def test_the_first_row_of_each_identity_in_the_ranges_is_there_once_and_in_order(
    rows: list[Row], ranges: dict[str, tuple[int, int]], chunk_rows: int
) -> None:
    dataset = of_kilometres(ranges)
    inside = [row for row in rows if row.offset in range(*ranges.get(str(row.partition), (0, 0)))]
    first = list({row.identity: row for row in reversed(inside)}.values())
    expected = sorted(first)
    table = usable(rows, chunk_rows)
    found = prepare_rows(table, dataset)
    assert found.training.select(["id", "km"]).to_pydict() == fields(row for row in expected if not row.is_held_out)
    assert found.holdout.select(["id", "km"]).to_pydict() == fields(row for row in expected if row.is_held_out)
    assert found.duplicates == len(inside) - len(expected)
    assert found.excluded == dataset.offset_count - len(inside)
    whole = rows_of(table, dataset)
    assert [whole[name].to_pylist() for name in (PARTITION, OFFSET)] == columns(row[:2] for row in expected)
    assert whole.column_names == table.column_names


def test_numbers_that_are_equal_are_one_identity() -> None:
    table = usable([Row(0, offset, 1, "") for offset in range(4)])
    dataset = replace(of_kilometres({"0": (0, 4)}), identity="number")
    numbered = table.append_column("number", pa.chunked_array([[0.0, 1.0], [-0.0, 1.0]]))
    assert prepare_rows(numbered, dataset).training["km"].to_pylist() == [0.0, 1.0]


def test_rows_of_other_transforms_than_the_datasets_are_excluded_before_an_identity_counts() -> None:
    rows = [Row(0, 0, 1, VERSIONS[1]), Row(0, 1, 1, VERSIONS[2]), Row(0, 2, 2, ""), Row(0, 3, 1, VERSIONS[2])]
    dataset = replace(of_kilometres({"0": (0, 4)}), modules=("", VERSIONS[2]))
    found = prepare_rows(usable(rows), dataset)
    assert found.training["km"].to_pylist() == [1.0, 2.0]
    assert (found.excluded, found.duplicates) == (1, 1)


def test_modules_that_an_earlier_release_named_by_digest_exclude_nothing() -> None:
    dataset = replace(of_kilometres({"0": (0, 2)}), modules=("sha256:" + "0" * 64,))
    table = usable([Row(0, 0, 1, ""), Row(0, 1, 2, VERSIONS[1])])
    assert prepare_rows(table, dataset).training.num_rows == 2

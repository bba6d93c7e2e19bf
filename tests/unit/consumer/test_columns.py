"""Records and outputs as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.consumers.column_handlers import output_columns
from wasmline.consumer import ConsumedRecord, NullKeys, Ordering, Output
from wasmline.consumer.columns import ColumnResult, OutputColumns, RecordColumns, require_valid
from wasmline.errors import HandlerBroken
from wasmline.record_batches import HEADERS
from wasmline.testing.strategies import consumed_records

KEYS = st.lists(st.sampled_from([None, b"", b"a", b"b", b"c"]), min_size=1, max_size=40)


def of_one_partition(records: list[ConsumedRecord]) -> list[ConsumedRecord]:
    return [
        record._replace(topic="in", partition=3, offset=10 * number, attempt=1) for number, record in enumerate(records)
    ]


def shapes(records: list[ConsumedRecord]) -> list[ConsumedRecord]:
    return [record._replace(headers=list(record.headers)) for record in records]


def keyed(keys: list[bytes | None]) -> RecordColumns:
    return RecordColumns.of([ConsumedRecord("in", 0, number, key, b"") for number, key in enumerate(keys)])


@given(records=st.lists(consumed_records(), min_size=1, max_size=10), cut=st.integers(1, 9))
def test_columns_hold_records_of_every_shape(records: list[ConsumedRecord], cut: int) -> None:
    records = of_one_partition(records)
    columns = RecordColumns.of(records)
    assert shapes(columns.records()) == shapes(records)
    assert (columns.first, columns.last, len(columns)) == (0, records[-1].offset, len(records))
    if cut < len(columns):
        parts = [columns.slice(0, cut), columns.slice(cut, len(columns) - cut)]
        assert sum(part.size for part in parts) == columns.size
        assert shapes(RecordColumns.joined(parts).records()) == shapes(records)
        assert shapes([parts[1].record(0)]) == shapes([records[cut]])


@given(keys=KEYS, parts=st.integers(1, 5))
def test_no_two_parts_have_records_that_wait_for_each_other(keys: list[bytes | None], parts: int) -> None:
    columns = keyed(keys)
    for ordering in Ordering:
        for null_keys in NullKeys:
            found = [rows.tolist() for rows in columns.split(parts, ordering, null_keys)]
            assert sorted(row for rows in found for row in rows) == list(range(len(keys)))
            assert all(rows and rows == sorted(rows) for rows in found)
            assert len(found) <= parts
            if ordering is Ordering.PARTITION:
                assert len(found) == 1
            if ordering is Ordering.KEY:
                places = [{keys[row] for row in rows} for rows in found]
                for key in set(keys) - ({None} if null_keys is NullKeys.UNORDERED else set()):
                    assert sum(key in place for place in places) == 1


def test_many_keys_are_shared_by_all_parts() -> None:
    found = keyed([b"%d" % number for number in range(100)]).split(4, Ordering.KEY, NullKeys.SERIAL)
    assert [len(rows) for rows in found] == [25] * 4


@pytest.mark.parametrize("parts", [1, 3])
def test_the_results_of_parts_are_that_of_all(parts: int) -> None:
    columns = keyed([b"%d" % (number % 7) for number in range(30)])
    outputs = [Output("out", b"%d.%d" % (row, number), timestamp=row) for row in range(30) for number in range(row % 3)]
    rows = [row for row in range(30) for _ in range(row % 3)]
    errors: dict[int, Exception] = {row: ValueError(row) for row in range(0, 30, 11)}
    divided = []
    for chosen in columns.split(parts, Ordering.KEY, NullKeys.SERIAL):
        of_part = {row: place for place, row in enumerate(chosen.tolist())}
        mine = [(output, of_part[row]) for output, row in zip(outputs, rows, strict=True) if row in of_part]
        made = output_columns([output for output, _ in mine], [place for _, place in mine])
        failed = {of_part[row]: error for row, error in errors.items() if row in of_part}
        divided.append((chosen, ColumnResult(made, failed)))
    together = ColumnResult.joined(divided)
    assert together.outputs.outputs() == [output._replace(headers=()) for output in outputs]
    assert together.outputs.rows == rows
    assert together.failures == errors


OUTPUT = Output("out", b"", timestamp=0)


def changed(name: str, values: pa.Array) -> ColumnResult:
    """Return an output with a value that the contract does not allow."""
    batch = output_columns([OUTPUT], [0]).batch
    number = batch.schema.get_field_index(name)
    columns = [*batch.columns[:number], values, *batch.columns[number + 1 :]]
    return ColumnResult(OutputColumns(["out"], pa.RecordBatch.from_arrays(columns, schema=batch.schema)))


def named(names: pa.Array) -> ColumnResult:
    """Return an output with a header of this name."""
    pairs = pa.StructArray.from_arrays([names, pa.array([b""])], fields=list(HEADERS.value_type))
    return changed("headers", pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs, type=HEADERS))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "NoneType"),
        ([OUTPUT], "list"),
        (ColumnResult(output_columns([OUTPUT, OUTPUT], [1, 0])), "not in the order"),
        (ColumnResult(output_columns([OUTPUT], [2])), "not in the order"),
        (ColumnResult(output_columns([OUTPUT], [-1])), "not in the order"),
        (ColumnResult(OutputColumns([], output_columns([OUTPUT], [0]).batch)), "other topics"),
        (ColumnResult(OutputColumns(["out"], output_columns([OUTPUT], [0]).batch.drop_columns(["row"]))), "columns"),
        (ColumnResult(output_columns([], []), {2: ValueError()}), "row 2 of 2"),
        (ColumnResult(output_columns([], []), {0: "no error"}), "str"),  # type: ignore[dict-item]
        (ColumnResult(output_columns([], []), [ValueError()]), "list"),  # type: ignore[arg-type]
        (ColumnResult(None), "NoneType"),  # type: ignore[arg-type]
        (changed("row", pa.nulls(1, pa.int32())), "no row"),
        (changed("output", pa.nulls(1, pa.int32())), "no row, topic"),
        (changed("timestamp", pa.nulls(1, pa.int64())), "timestamp"),
        (named(pa.nulls(1, pa.string())), "name of a header"),
        (named(pa.array([b"\xff\xfe\xfd\xfc"]).view(pa.string())), "no columns of the contract"),
    ],
)
def test_a_result_that_is_none_is_the_handlers_fault(result: object, text: str) -> None:
    with pytest.raises(HandlerBroken, match=text):
        require_valid(result, 2)


def test_a_result_may_be_empty_and_may_fail_records() -> None:
    result = ColumnResult(output_columns([OUTPUT, OUTPUT], [0, 0]), {1: ValueError()})
    assert require_valid(result, 2).outputs.rows == [0, 0]
    empty = ColumnResult(output_columns([], []))
    assert require_valid(empty, 1) is empty


def test_a_record_that_failed_has_no_outputs() -> None:
    outputs = [Output("out", b"%d" % row, timestamp=0) for row in range(3)]
    result = require_valid(ColumnResult(output_columns(outputs, [0, 1, 2]), {1: ValueError()}), 3)
    assert (result.outputs.rows, set(result.failures)) == ([0, 2], {1})


def test_parts_whose_outputs_have_other_topics_are_the_handlers_fault() -> None:
    parts = [ColumnResult(output_columns([Output(topic, b"", timestamp=0)], [0])) for topic in ("a", "b")]
    with pytest.raises(HandlerBroken, match="other topics"):
        ColumnResult.joined([(np.array([row]), part) for row, part in enumerate(parts)])


def test_outputs_of_one_topic_can_be_chosen() -> None:
    outputs = [Output("a", b"1", timestamp=0), Output("b", b"2", timestamp=0), Output("a", b"3", timestamp=0)]
    columns = output_columns(outputs, [0, 1, 2])
    assert columns.topics_written == ["a", "b"]
    assert [output.value for output in columns.of_topic("a").outputs()] == [b"1", b"3"]
    assert len(columns.of_topic("c")) == len(columns.of_topic(None)) == 0
    assert columns.output(1).value == b"2"
    assert isinstance(columns.batch, pa.RecordBatch)

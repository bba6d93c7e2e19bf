"""The provenance header: its form, what is accepted of it, and its place among other headers."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.model_reference import ModelReference
from wasmline.provenance import (
    MAX_BYTES,
    NAME,
    Provenance,
    ProvenanceWriter,
    ShortModelReference,
    parse,
    with_header,
    without_header,
)
from wasmline.record_batches import HEADERS
from wasmline.topic_partitions import TopicPartition

DIGEST = "sha256:" + "0123456789ab" + "f" * 52
MODEL = ModelReference(name="eta", version="1.3.0-rc.1", digest="sha256:" + "b" * 64, dataset="sha256:" + "c" * 64)

TEXT = st.text("ABZaz09._-", min_size=1, max_size=128)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format)
MODELS = st.none() | st.builds(
    ModelReference, name=TEXT, version=st.text("09AZaz.+-", min_size=1), digest=HEX, dataset=HEX
)
HEADER_LISTS = st.none() | st.lists(
    st.tuples(
        st.sampled_from([NAME, f"{NAME}\0", f"{NAME}\0x", f"{NAME}s", "h", "ä"]), st.none() | st.binary(max_size=3)
    ),
    max_size=3,
)


def writer(model: ModelReference | None = None) -> ProvenanceWriter:
    return ProvenanceWriter("orders", name="t", version="1.0.0", digest=DIGEST, model=model)


def test_the_value_names_record_transform_and_module() -> None:
    assert writer().value(3, 42) == b"orders 3 42 t@1.0.0 0123456789ab"
    assert parse(b"orders 3 42 t@1.0.0 0123456789ab") == Provenance(
        source=TopicPartition("orders", 3), offset=42, name="t", version="1.0.0", digest="0123456789ab"
    )


def test_the_value_of_a_prediction_names_model_and_dataset_too() -> None:
    value = b"orders 0 0 t@1.0.0 0123456789ab eta@1.3.0-rc.1 bbbbbbbbbbbb cccccccccccc"
    assert writer(MODEL).value(0, 0) == value
    found = parse(value)
    assert found is not None
    assert found.model == ShortModelReference(name="eta", version="1.3.0-rc.1", digest="b" * 12, dataset="c" * 12)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=5), TEXT, HEX, MODELS)
def test_what_is_written_is_parsed_and_a_column_has_the_same_values(
    places: list[tuple[int, int]], name: str, digest: str, model: ModelReference | None
) -> None:
    made = ProvenanceWriter("orders", name=name, version="2.0.0", digest=digest, model=model)
    partitions = pa.array([partition for partition, _ in places], pa.int32())
    column = made.column(partitions, pa.array([offset for _, offset in places], pa.int64()))
    assert column.type == pa.binary()
    assert column.to_pylist() == [made.value(*place) for place in places]
    for (partition, offset), value in zip(places, column.to_pylist(), strict=True):
        found = parse(value)
        assert found is not None
        assert (found.source, found.offset) == (TopicPartition("orders", partition), offset)
        assert (found.name, found.version, found.digest) == (name, "2.0.0", digest[7:19])
        assert str(found.model) == str(model)


def test_the_longest_value_is_within_the_bound() -> None:
    longest = ModelReference(name="n" * 128, version="1" * 128, digest=DIGEST, dataset=DIGEST)
    made = ProvenanceWriter("t" * 249, name="n" * 128, version="1" * 128, digest=DIGEST, model=longest)
    value = made.value(2**31 - 1, 2**63 - 1)
    assert len(value) <= MAX_BYTES
    assert parse(value) is not None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"orders 3 42 t@1.0.0",
        b" orders 3 42 t@1.0.0 0123456789ab",
        b"orders 3 42 t@1.0.0 0123456789ab ",
        b"orders 3 42 t@1.0.0 0123456789ab\n",
        b"orders  3 42 t@1.0.0 0123456789ab",
        b"orders 03 42 t@1.0.0 0123456789ab",
        b"orders -1 42 t@1.0.0 0123456789ab",
        b"orders 2147483648 42 t@1.0.0 0123456789ab",
        b"orders 3 9223372036854775808 t@1.0.0 0123456789ab",
        b"orders 3 42 t 0123456789ab",
        b"orders 3 42 t@1.0.0 0123456789AB",
        b"orders 3 42 t@1.0.0 0123456789abc",
        b"orders 3 42 t@1.0.0 0123456789ab eta@1.0.0",
        b"orders 3 42 t@1.0.0 0123456789ab eta@1.0.0 bbbbbbbbbbbb",
        "ördérs 3 42 t@1.0.0 0123456789ab".encode(),
        b"o\x1b[2J 3 42 t@1.0.0 0123456789ab",
        b"orders 3 42 t@1.0.0 0123456789ab" + b" " * MAX_BYTES,
    ],
)
def test_any_other_value_is_none(value: bytes | None) -> None:
    assert parse(value) is None


@given(st.binary() | st.text("orders 0123456789@.abcdef").map(str.encode))
def test_any_bytes_are_parsed_to_what_writes_them_again_or_to_none(value: bytes) -> None:
    found = parse(value)
    if found is not None:
        reference = f"{found.name}@{found.version} {found.digest}"
        model = f" {found.model} {found.model.digest} {found.model.dataset}" if found.model else ""
        assert f"{found.source.topic} {found.source.partition} {found.offset} {reference}{model}".encode() == value


@given(st.lists(st.tuples(HEADER_LISTS, st.none() | st.binary(max_size=3)), max_size=6), st.integers(0, 2))
def test_the_header_is_the_last_of_each_row_and_the_only_one_of_its_name(
    rows: list[tuple[list[tuple[str, bytes | None]] | None, bytes | None]], skipped: int
) -> None:
    headers = pa.array([each for each, _ in rows], HEADERS).slice(skipped)
    values = pa.array([value for _, value in rows], pa.binary()).slice(skipped)
    others = [[pair for pair in each or () if pair[0].split("\0")[0] != NAME] for each, _ in rows[skipped:]]
    ours: list[list[tuple[str, bytes | None]]] = [
        [] if value is None else [(NAME, value)] for _, value in rows[skipped:]
    ]
    made = with_header(headers, values)
    made.validate(full=True)
    assert pairs(made) == [other + our for other, our in zip(others, ours, strict=True)]
    assert pairs(without_header(headers)) == others


def pairs(column: pa.ListArray) -> list[list[tuple[str, bytes | None]]]:
    return [[(each["key"], each["value"]) for each in row or ()] for row in column.to_pylist()]


def test_a_slice_of_a_column_gets_the_headers_of_its_own_rows() -> None:
    rows = [[{"key": "h", "value": b"%d" % row}] * (row % 3) for row in range(12)]
    values = pa.array([b"a", None, b"c", b"d"], pa.binary())
    sliced, whole = pa.array(rows, HEADERS).slice(5, 4), pa.array(rows[5:9], HEADERS)
    assert with_header(sliced, values).to_pylist() == with_header(whole, values).to_pylist()
    assert without_header(sliced).to_pylist() == rows[5:9]

"""The records of kept slices, read as untrusted input."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import InvalidLayout, InvalidReference, UnsupportedSpecVersion
from wasmline.registry.oci_manifest import blob_path
from wasmline.registry.storage import open_storage
from wasmline.training import kept_rows
from wasmline.training.kept_rows import SCHEMA, KeptRows, KeptSlice
from wasmline.training.prepare import OFFSET, PARTITION, VALUE

COORDINATES = [(0, 3), (0, 5), (2, 0)]


def records(coordinates: Sequence[tuple[int, int]] = COORDINATES, value: bytes | None = b"{}") -> pa.Table:
    rows = [(partition, offset, 1_000 + offset, value, None) for partition, offset in coordinates]
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def kept_slice(data: bytes, **changed: Any) -> KeptSlice:
    return replace(
        KeptSlice(
            model="eta",
            number=7,
            topic="features",
            topic_id="t1",
            offsets={"0": (3, 6), "2": (0, 1)},
            records=3,
            digest=digest_of(data),
        ),
        **changed,
    )


@pytest.fixture
def url(tmp_path: Any) -> str:
    return str(tmp_path)


def put(url: str, data: bytes, document: bytes, digest: str = "") -> KeptRows:
    files = [(blob_path(digest or digest_of(data)), data), ("slice_rows.json", document)]
    assert open_storage(url).create("slice_rows/eta/000007", files)
    return KeptRows(url)


def test_records_are_read_as_they_were_kept(url: str) -> None:
    data = parquet(records())
    kept = kept_slice(data)
    rows = put(url, data, encode(kept))
    assert rows.slices("eta") == [kept]
    assert rows.read(kept) == records()
    assert rows.numbers("eta") == [7]
    assert rows.numbers("other") == []
    with pytest.raises(InvalidReference):
        rows.numbers("../eta")


def test_records_are_read_that_were_kept_before_files_had_their_digest_for_a_name(url: str) -> None:
    data = parquet(records())
    kept = kept_slice(data)
    for number, content in ((7, data), (8, parquet(records(value=b"[]")))):
        document = encode(replace(kept, number=number))
        files = [("rows.parquet", content), ("slice_rows.json", document)]
        assert open_storage(url).create(f"slice_rows/eta/{number:06}", files)
    rows = KeptRows(url)
    good, forged = rows.slices("eta")
    assert rows.read(good) == records()
    with pytest.raises(InvalidLayout, match=r"its digest is sha256:.*, not sha256:"):
        rows.read(forged)


def a_bomb() -> bytes:
    """Return a small file of one large value in many rows."""
    return parquet(records([(0, offset) for offset in range(3, 603)], bytes(1_000_000)))


FORGED: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "no Parquet": (b"PAR1 no PAR1", {}, ".*"),
    "nothing": (b"", {}, ".*"),
    "another file": (parquet(records()), {"digest": digest_of(b"")}, "its digest is sha256:.*, not sha256:.*"),
    "another number of records": (parquet(records()), {"records": 4}, "expected 4 rows of at most .*, found 3"),
    "too many records": (
        parquet(records()),
        {"records": kept_rows.MAX_RECORDS + 1},
        "expected 4000001 rows of at most 4000000, found 3",
    ),
    "other columns": (parquet(records().select([PARTITION, OFFSET])), {}, "expected the columns .*"),
    "texts": (
        parquet(records().set_column(3, VALUE, pa.array(["{}"] * 3))),
        {},
        "expected the columns .* or other types",
    ),
    "an offset without a value": (
        parquet(records().set_column(1, OFFSET, pa.array([3, None, 0], pa.int64()))),
        {},
        "expected the columns .* or other types",
    ),
    "another order": (parquet(records(COORDINATES[::-1])), {}, "its records are not in the order of .*"),
    "a record twice": (parquet(records([(0, 3), (0, 3), (2, 0)])), {}, "its records are not in the order of .*"),
    "an offset before the slice": (parquet(records([(0, 2), (0, 5), (2, 0)])), {}, "at other offsets than the slice"),
    "an offset after the slice": (parquet(records([(0, 3), (0, 6), (2, 0)])), {}, "at other offsets than the slice"),
    "another partition": (parquet(records([(0, 3), (0, 5), (1, 0)])), {}, "at other offsets than the slice"),
    "a bomb": (a_bomb(), {"records": 600, "offsets": {"0": (3, 603)}}, "they take more than 536870912 bytes"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_file_is_one_error_that_says_what_and_where(url: str, case: str) -> None:
    data, changed, complaint = FORGED[case]
    kept = kept_slice(data, **changed)
    path = f"slice_rows/eta/000007/{blob_path(kept.digest)}"
    with pytest.raises(InvalidLayout, match=rf"{path} in .*{complaint}") as caught:
        put(url, data, encode(kept), kept.digest).read(kept)
    assert caught.value.path == path


def test_a_file_above_the_limit_is_not_decoded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet(records())
    kept = kept_slice(data)
    rows = put(url, data, encode(kept))
    monkeypatch.setattr(kept_rows, "MAX_DECODED_BYTES", len(data) - 1)
    with pytest.raises(InvalidLayout, match="it takes more than"):
        rows.read(kept)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (b"", ""),
        (b"[]", ""),
        (encode(kept_slice(b"", number=8)), "it contains kept slice 8 of 'eta'"),
        (encode(kept_slice(b"", model="other")), "it contains kept slice 7 of 'other'"),
        (encode(kept_slice(b"")).replace(b"[3,6]", b"[6,3]"), "not pairs in ascending order"),
        (encode(kept_slice(b"")).replace(b'"t1"', b"1"), "topic_id"),
        (
            encode(kept_slice(b"")).replace(b'"sha256:', b'"sha256:../'),
            r"the digest 'sha256:\.\./e3b0.*' is not supported",
        ),
    ],
)
def test_a_forged_document_is_one_error_that_says_what_and_where(url: str, document: bytes, complaint: str) -> None:
    rows = put(url, b"", document)
    with pytest.raises(InvalidLayout, match=rf"slice_rows/eta/000007/slice_rows\.json in .*{complaint}"):
        rows.slices("eta")


def test_a_document_of_a_later_release_is_named(url: str) -> None:
    rows = put(url, b"", encode(kept_slice(b"")).replace(b'"spec_version":1', b'"spec_version":2'))
    with pytest.raises(UnsupportedSpecVersion, match="slice_rows/eta/000007"):
        rows.slices("eta")

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wasmline.documents import plain
from wasmline.errors import InvalidLayout, InvalidModel
from wasmline.registry import Layer, OciLayoutStore
from wasmline.training import ModelRecord, ModelRegistry, held_out_rows

SCHEMA = pa.schema([("id", "string"), ("km", "double"), ("kind", "string"), ("minutes", "double")])


def rows(count: int) -> pa.Table:
    """Return held-out rows as Spark gives them: all fields, in the dataset's order."""
    return pa.table(
        {
            "minutes": [float(place) for place in range(count)],
            "id": [f"d{place}" for place in range(count)],
            "km": [None if place % 3 == 0 else place / 7 for place in range(count)],
            "kind": [("a", "b", None, 'an "ä"')[place % 4] for place in range(count)],
        }
    ).cast(pa.schema([SCHEMA.field(name) for name in ("minutes", "id", "km", "kind")]))


@pytest.fixture
def models(tmp_path: Path) -> ModelRegistry:
    return ModelRegistry(str(tmp_path / "models"))


def test_held_out_rows_are_kept_beside_the_model(models: ModelRegistry, record: ModelRecord) -> None:
    stored = models.publish(record, b"{}", held_out=rows(100))
    assert stored.record == replace(record, held_out_rows=100)
    assert models.held_out("eta", "1.0.0") == rows(100).select(SCHEMA.names)
    assert models.publish(record, b"{}", held_out=rows(100)) == stored
    assert models.read("eta", "1.0.0") == b"{}"


def test_of_more_rows_than_are_kept_some_are_drawn_by_the_datasets_seed(
    models: ModelRegistry, record: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out_rows, "MAX_ROWS", 40)
    assert models.publish(record, b"{}", held_out=rows(100)).record.held_out_rows == 40
    assert record.metrics.rows == 100
    kept = models.held_out("eta", "1.0.0")["minutes"].to_pylist()
    assert kept == sorted(set(kept))
    assert kept != [float(place) for place in range(40)]
    other = replace(record, dataset=replace(record.dataset, seed=8))
    models.publish(other, b"{}", held_out=rows(100))
    assert models.held_out("eta", "1.1.0")["minutes"].to_pylist() != kept


def test_as_many_rows_are_kept_as_a_layer_takes(
    models: ModelRegistry, record: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        held_out_rows,
        "MAX_LAYER_BYTES",
        len(held_out_rows.encode_rows(rows(5_000), record.layout, record.dataset)[0]) - 1,
    )
    assert models.publish(record, b"{}", held_out=rows(5_000)).record.held_out_rows == 2_500
    assert models.held_out("eta", "1.0.0").num_rows == 2_500


def test_a_version_that_was_stored_without_rows_is_read_and_cannot_be_proven(
    models: ModelRegistry, record: ModelRecord
) -> None:
    stored = models.publish(record, b"{}")
    assert models.load("eta", "1.0.0") == (stored, b"{}")
    with pytest.raises(InvalidModel, match=r"eta@1\.0\.0 in .* was stored without its held-out rows.*: train it again"):
        models.held_out("eta", "1.0.0")


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def large_texts() -> bytes:
    """Return rows of one text that is in the file once: plain, they take 2 GB."""
    one = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 1_000_000]))
    return parquet(rows(2_000).select(SCHEMA.names).set_column(0, "id", one), compression="zstd", store_schema=False)


def not_utf8() -> bytes:
    data = parquet(rows(2_000).select(SCHEMA.names), compression="none")
    assert data.count(b"d1997") == 1
    return data.replace(b"d1997", b"d19\xff7")


def damaged() -> bytes:
    data = parquet(rows(2_000).select(SCHEMA.names), compression="zstd")
    return data[:100] + bytes(50) + data[150:]


FORGED: dict[str, tuple[bytes, str]] = {
    "no Parquet": (b"PAR1 no PAR1", ".*"),
    "nothing": (b"", ".*"),
    "other columns": (parquet(rows(2_000).select(["id", "km"])), "expected the columns .*'kind'.*"),
    "another order": (parquet(rows(2_000)), "expected the columns .*"),
    "another type": (
        parquet(rows(2_000).select(SCHEMA.names).set_column(1, "km", pa.array(["1"] * 2_000))),
        "expected the columns .* or other types",
    ),
    "fewer rows": (parquet(rows(1_999).select(SCHEMA.names)), "expected 2000 rows of at most 1000000, found 1999"),
    "a text that is large in every row": (large_texts(), "they take more than 1073741824 bytes"),
    "a text that is not UTF-8": (not_utf8(), ".*Invalid UTF8.*"),
    "a damaged page": (damaged(), ".*"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_rows_are_one_error_that_says_what_and_where(
    models: ModelRegistry, record: ModelRecord, case: str
) -> None:
    data, complaint = FORGED[case]
    OciLayoutStore(models.url).put(
        "models",
        "eta",
        "1.0.0",
        layers=[
            Layer(media_type="application/json", data=b"{}"),
            Layer(media_type="application/vnd.apache.parquet", data=data),
        ],
        config=Layer.json("application/vnd.wasmline.model.config.v1+json", plain(replace(record, held_out_rows=2_000))),
    )
    assert models.get("eta", "1.0.0").record.held_out_rows == 2_000
    with pytest.raises(InvalidLayout, match=rf"models/eta/1\.0\.0 in .* its held-out rows: {complaint}"):
        models.held_out("eta", "1.0.0")

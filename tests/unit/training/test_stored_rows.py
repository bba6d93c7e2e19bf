import io
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wasmline.documents import plain
from wasmline.errors import InvalidLayout, InvalidModel, UnsupportedSpecVersion
from wasmline.registry import Layer, OciLayoutStore
from wasmline.training import ModelRecord, ModelRegistry, stored_rows
from wasmline.training.stored_documents import stored_document

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
    monkeypatch.setattr(stored_rows, "MAX_ROWS", 40)
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
        stored_rows,
        "MAX_LAYER_BYTES",
        len(stored_rows.encode_rows(rows(5_000), record.held_out_schema, seed=record.dataset.seed)[0]) - 1,
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
    put(models, replace(record, held_out_rows=2_000), [b"{}", data])
    assert models.get("eta", "1.0.0").record.held_out_rows == 2_000
    with pytest.raises(InvalidLayout, match=rf"models/eta/1\.0\.0 in .* its held-out rows: {complaint}"):
        models.held_out("eta", "1.0.0")


FORWARD = {"_partition": pa.int32(), "_offset": pa.int64(), "_held_out": pa.bool_(), "_stand_in": pa.float64()}


def forward(count: int) -> pa.Table:
    """Return forward rows: all fields, the coordinates, whether they are held out, and predictions."""
    values = {"_partition": 0, "_offset": 7, "_held_out": True, "_stand_in": 30.5}
    table = rows(count).select(sorted(SCHEMA.names))
    for name, kind in FORWARD.items():
        table = table.append_column(pa.field(name, kind, nullable=False), pa.array([values[name]] * count, kind))
    return table


@pytest.fixture
def gated(record: ModelRecord) -> ModelRecord:
    return replace(record, spec_version=2)


def test_rows_of_the_gate_have_all_fields(models: ModelRegistry, gated: ModelRecord) -> None:
    gated.dataset.fields["city"] = "string"
    held_out = rows(100).append_column("city", pa.array(["Delhi", None] * 50))
    newest = forward(30).append_column("city", pa.array(["Agra"] * 30))
    stored = models.publish(gated, b"{}", held_out=held_out, forward=newest)
    assert stored.record == replace(gated, held_out_rows=100, forward_rows=30)
    assert models.held_out("eta", "1.0.0") == held_out.select(["city", "id", "kind", "km", "minutes"])
    read = models.forward("eta", "1.0.0")
    assert read is not None
    assert read == newest.select(read.column_names)
    assert models.publish(gated, b"{}", held_out=held_out, forward=newest) == stored


def test_a_version_may_have_no_forward_rows(models: ModelRegistry, gated: ModelRecord, record: ModelRecord) -> None:
    for one in (gated, record):
        version = models.publish(one, b"{}", held_out=rows(100)).version
        assert models.forward("eta", version) is None


def test_an_earlier_release_says_that_it_cannot_read_the_rows_of_the_gate(gated: ModelRecord) -> None:
    with pytest.raises(UnsupportedSpecVersion, match="of spec version 2, and this release reads 1"):
        stored_document(ModelRecord, plain(gated), "models/eta/1.0.0", newest=1)


def a_null(name: str) -> bytes:
    """Return forward rows of which one has no value."""
    table = forward(2_000)
    place = table.column_names.index(name)
    return parquet(table.set_column(place, name, pa.array([None, *table[name].to_pylist()[1:]], FORWARD[name])))


FORGED_FORWARD: dict[str, tuple[bytes, str]] = {
    "no Parquet": (b"PAR1 no PAR1", ".*"),
    "held-out rows": (parquet(rows(2_000).select(sorted(SCHEMA.names))), "expected the columns .*'_stand_in'.*"),
    "a coordinate without value": (a_null("_offset"), "expected the columns .* or other types"),
    "a prediction without value": (a_null("_stand_in"), "expected the columns .* or other types"),
    "more rows": (parquet(forward(2_001)), "expected 2000 rows of at most 1000000, found 2001"),
}


@pytest.mark.parametrize("case", FORGED_FORWARD)
def test_forged_forward_rows_are_one_error_that_says_what_and_where(
    models: ModelRegistry, gated: ModelRecord, case: str
) -> None:
    data, complaint = FORGED_FORWARD[case]
    layers = [b"{}", parquet(rows(1).select(sorted(SCHEMA.names))), data]
    put(models, replace(gated, held_out_rows=1, forward_rows=2_000), layers)
    with pytest.raises(InvalidLayout, match=rf"models/eta/1\.0\.0 in .* its forward rows: {complaint}"):
        models.forward("eta", "1.0.0")


@pytest.mark.parametrize(("spec_version", "layers"), [(1, 3), (2, 4)])
def test_more_layers_than_a_release_wrote_are_refused(
    models: ModelRegistry, record: ModelRecord, spec_version: Literal[1, 2], layers: int
) -> None:
    put(models, replace(record, spec_version=spec_version), [b"{}", *[b"rows"] * (layers - 1)])
    with pytest.raises(InvalidLayout, match="expected the media types"):
        models.get("eta", "1.0.0")


def put(models: ModelRegistry, record: ModelRecord, layers: list[bytes]) -> None:
    """Store a model's bytes and rows as they are."""
    types = ["application/json", *["application/vnd.apache.parquet"] * (len(layers) - 1)]
    OciLayoutStore(models.url).put(
        "models",
        "eta",
        "1.0.0",
        layers=[Layer(media_type=kind, data=data) for kind, data in zip(types, layers, strict=True)],
        config=Layer.json("application/vnd.wasmline.model.config.v1+json", plain(record)),
    )

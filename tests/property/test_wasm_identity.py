"""Whatever a batch holds and however it is cut, an identity guest gives it back, whatever it was written in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wasmline.build import build, load_project
from wasmline.errors import ToolchainMissing
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.strategies import record_batches
from wasmline.wasm import TransformContext, TransformInstance, TransformRuntime

PROJECTS = Path(__file__).parents[2] / "wasm_modules/guests/identity"


@pytest.fixture(scope="module", params=["wat, ABI 1", "wat, ABI 2", "cpp", "go", "rust"])
def identity(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformInstance]:
    folder = tmp_path_factory.mktemp("identity")
    context = TransformContext(name="identity", input_topic="in", output_topics=("out",))
    with TransformRuntime(folder).compile(guest_in(request.param, folder)).instantiate(context) as instance:
        yield instance


def guest_in(language: str, folder: Path) -> bytes:
    if language.startswith("wat"):
        return guests.guest(abi=int(language[-1]))
    try:
        report = build(load_project(PROJECTS / language), output=folder / "identity.wasm")
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    return Path(report.path).read_bytes()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(batch=record_batches())
def test_identity_gives_back_any_batch(identity: TransformInstance, batch: pa.RecordBatch) -> None:
    check(identity, batch, batch.to_pylist())


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    sizes=st.lists(st.one_of(st.none(), st.integers(0, 300), st.integers(2**20, 3 * 2**20)), min_size=1, max_size=6),
    first=st.integers(0, 2),
    where=st.sampled_from(["key", "value", "header"]),
)
def test_identity_gives_back_values_of_megabytes(
    identity: TransformInstance, sizes: list[int | None], first: int, where: str
) -> None:
    records: list[dict[str, Any]] = []
    for row, size in enumerate(sizes):
        content = None if size is None else (b"%d." % row * (size // 2 + 1))[:size]
        headers = [{"key": "h", "value": content}] if where == "header" else None
        records.append({"key": None, "value": b"", "headers": headers, "timestamp": row, "partition": 0, "offset": row})
        if where != "header":
            records[-1][where] = content
    check(identity, pa.RecordBatch.from_pylist(records, schema=RECORD_SCHEMA).slice(first), records[first:])


def check(identity: TransformInstance, batch: pa.RecordBatch, records: list[dict[str, Any]]) -> None:
    result = identity.transform(batch)
    result.outputs.validate(full=True)
    assert (result.failures, result.logs) == ((), ())
    assert result.outputs.column("row").to_pylist() == list(range(len(records)))
    written = result.outputs.select(["key", "value", "headers"]).to_pylist()
    wanted = [{name: record[name] for name in ("key", "value", "headers")} for record in records]
    assert written == [{**record, "headers": record["headers"] or []} for record in wanted]

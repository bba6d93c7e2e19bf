"""Whatever a batch holds and however it is cut, an identity guest gives it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wasmline.records import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.wasm import TransformContext, TransformInstance, TransformRuntime

# Around every threshold of the copy, and of the one-, two- and three-byte varints.
EDGES = sorted({edge + step for edge in (0, 4, 8, 16, 32, 64, 256, 8192) for step in (-1, 0, 1) if edge + step >= 0})
SIZES = st.one_of(st.sampled_from(EDGES), st.integers(0, 300))
BYTES = st.one_of(st.none(), st.builds(lambda size, letter: bytes([letter]) * size, SIZES, st.integers(0, 255)))
TEXT = st.one_of(st.text(max_size=20), st.builds(lambda size: "h" * size, SIZES))
HEADER = st.fixed_dictionaries({"key": TEXT, "value": BYTES})
RECORD = st.fixed_dictionaries(
    {
        "key": BYTES,
        "value": BYTES,
        "headers": st.one_of(st.none(), st.lists(HEADER, max_size=5)),
        "timestamp": st.integers(-1, 2**41),
        "partition": st.just(0),
        "offset": st.integers(0, 2**62),
    }
)


@pytest.fixture(scope="module", params=[1, 2])
def identity(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformInstance]:
    context = TransformContext(name="identity", input_topic="in", output_topics=("out",))
    runtime = TransformRuntime(tmp_path_factory.mktemp("compiled"))
    with runtime.compile(guests.guest(abi=request.param)).instantiate(context) as instance:
        yield instance


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_identity_gives_back_any_batch(identity: TransformInstance, data: st.DataObject) -> None:
    records = data.draw(st.lists(RECORD, max_size=30))
    first = data.draw(st.integers(0, len(records)))
    last = data.draw(st.integers(first, len(records)))
    batch = pa.RecordBatch.from_pylist(records, schema=RECORD_SCHEMA).slice(first, last - first)

    result = identity.transform(batch)

    result.outputs.validate(full=True)
    assert (result.failures, result.logs) == ((), ())
    assert result.outputs.column("row").to_pylist() == list(range(last - first))
    written = result.outputs.select(["key", "value", "headers"]).to_pylist()
    wanted = [{name: record[name] for name in ("key", "value", "headers")} for record in records[first:last]]
    assert written == [{**record, "headers": record["headers"] or []} for record in wanted]

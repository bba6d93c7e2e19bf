from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from wasmline.record_batches import RECORD_SCHEMA
from wasmline.wasm import HostLimits, ResourceLimits, Schema, TransformContext, TransformInstance, TransformRuntime
from wasmline.wasm.transform_context import Clock

START_MS = 1_700_000_000_000
Start = Callable[..., TransformInstance]
Records = Callable[..., pa.RecordBatch]


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="session")
def runtime(cache_dir: Path) -> TransformRuntime:
    return TransformRuntime(cache_dir)


@pytest.fixture
def start(runtime: TransformRuntime) -> Iterator[Start]:
    """Start an instance of a module; every instance is closed when the test ends."""
    instances: list[TransformInstance] = []

    def started(
        wasm: bytes,
        *,
        outputs: tuple[str, ...] = ("out",),
        env: dict[str, str] | None = None,
        clock: Clock = "wasmline",
        schemas: tuple[Schema, ...] = (),
        host: HostLimits | None = None,
        **limits: int,
    ) -> TransformInstance:
        context = TransformContext(
            name="under-test", input_topic="in", output_topics=outputs, env=env or {}, clock=clock, schemas=schemas
        )
        instances.append(runtime.compile(wasm).instantiate(context, ResourceLimits(**limits), host))
        return instances[-1]

    yield started
    for instance in instances:
        instance.close()


@pytest.fixture
def records() -> Records:
    """Build a batch: one record per key, with value, headers and time as given or derived from the row."""

    def build(
        keys: Any, values: Any = None, headers: Any = None, times: Any = None, offsets: Any = None
    ) -> pa.RecordBatch:
        keys = list(keys)
        count = len(keys)
        columns = [
            keys,
            [b"value %d" % row for row in range(count)] if values is None else values,
            [[]] * count if headers is None else headers,
            [START_MS + row for row in range(count)] if times is None else times,
            [0] * count,
            list(range(count)) if offsets is None else offsets,
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)

    return build

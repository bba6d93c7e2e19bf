"""A guest of standard Go lives within its memory limit for ever: its garbage collector runs on this host's clock.

The short form collects garbage about as often as two million records do by default: after a hundred times, a collector
that believes it takes all the time there is gives up (runtime/mgclimit.go of Go), and the heap only grows.
"""

import json
import os
from collections.abc import Callable

import pyarrow as pa

from wasmline.errors import GuestOutOfMemory
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.wasm import CompiledTransform, ResourceLimits, TransformContext, TransformInstance
from wasmline.wasm.transform_context import Clock

LONG = "WASMLINE_LONG" in os.environ
RECORDS = 2_000_000 if LONG else 100_000
BATCH = 10_000
LIMITS = ResourceLimits(memory_bytes=64 * 2**20)

TRIP = {"id": "trip-0001", "from": [22.745049, 75.892471], "to": [22.765049, 75.912471], "note": "x" * 600}


def context(clock: Clock, *, collect_often: bool) -> TransformContext:
    env = {"GOGC": "25"} if collect_often else {}
    return TransformContext(name="json", input_topic="in", output_topics=("out",), env=env, clock=clock)


def batch(key: bytes | None, value: bytes | None, records: int) -> pa.RecordBatch:
    rows = [{"key": key, "value": value, "timestamp": 0, "partition": 0, "offset": offset} for offset in range(records)]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


TRIPS = batch(None, json.dumps(TRIP).encode(), BATCH)


def memory(instance: TransformInstance) -> dict[str, int]:
    """Return what the guest's runtime says of its heap."""
    (value,) = instance.transform(batch(b"memory", None, 1)).outputs.column("value").to_pylist()
    found: dict[str, int] = json.loads(value)
    return found


def test_the_heap_of_a_go_guest_stays_flat(sdk_guest: Callable[[str, str], CompiledTransform]) -> None:
    here = context("wasmline", collect_often=not LONG)
    with sdk_guest("json", "go").instantiate(here, LIMITS) as instance:
        seen = []
        for _half in range(2):
            for _ in range(RECORDS // 2 // BATCH):
                result = instance.transform(TRIPS)
                assert (result.failures, result.outputs.num_rows) == ((), BATCH)
            seen.append(memory(instance))
    half, whole = seen
    assert whole["heap_bytes"] == half["heap_bytes"]
    assert whole["collections"] > max(150, 1.9 * half["collections"])


def test_the_heap_grows_to_its_limit_on_redpandas_clock(sdk_guest: Callable[[str, str], CompiledTransform]) -> None:
    """Why that clock is not the default, and what makes the test above one that can fail."""
    with sdk_guest("json", "go").instantiate(context("redpanda", collect_often=True), LIMITS) as instance:
        failures = [failure for _ in range(10) for failure in instance.transform(TRIPS).failures]
    assert failures
    assert all(isinstance(failure.error, GuestOutOfMemory) for failure in failures)

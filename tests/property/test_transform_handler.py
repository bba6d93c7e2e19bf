"""A transform as a handler gives back any records of an identity, as the consumer reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wasmline.consumer import ConsumedRecord
from wasmline.control import DeploymentSpec
from wasmline.digests import digest_of
from wasmline.pipeline.transform_handler import ThreadHandler, TransformHandler
from wasmline.testing import guests
from wasmline.testing.strategies import consumed_records

WASM = guests.guest(abi=2)
ORIGIN = f"identity@1.0.0 {digest_of(WASM)[7:19]}"


@pytest.fixture(scope="module")
def handler() -> Iterator[ThreadHandler]:
    spec = DeploymentSpec(
        name="identity", version="1.0.0", digest=digest_of(WASM), input_topic="in", output_topics=("out",)
    )
    handler = TransformHandler(spec, WASM).make()
    yield handler
    handler.close()


@settings(max_examples=25)
@given(records=st.lists(consumed_records(), min_size=1, max_size=10))
def test_an_identity_gives_back_any_records(handler: ThreadHandler, records: list[ConsumedRecord]) -> None:
    outcome = handler(records)
    assert not outcome.failures
    assert [(each.topic, each.key, each.value, list(each.headers), each.timestamp) for each in outcome.outputs] == [
        (
            "out",
            each.key,
            each.value,
            [*each.headers, ("wasmline.provenance", f"in {each.partition} {each.offset} {ORIGIN}".encode())],
            each.timestamp,
        )
        for each in records
    ]

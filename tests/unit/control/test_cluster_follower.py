"""The ends of topics, read beside the thread that asks for them."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from wasmline.control import cluster_follower
from wasmline.control.cluster_follower import EndOffsetReader, Ends
from wasmline.kafka.config import KafkaConfig
from wasmline.local.process import wait_until


def test_ends_are_read_again_after_an_error_that_was_not_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_follower, "ENDS_INTERVAL_S", 0.0)
    reader = EndOffsetReader(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}))
    errors = [MemoryError("none is left")]

    def bounds(topics: Collection[str]) -> dict[str, dict[int, tuple[int, int]]]:
        if errors:
            raise errors.pop()
        return {topic: {0: (0, 7)} for topic in topics}

    monkeypatch.setattr(reader._topics, "bounds", bounds)
    found: list[Ends | None] = []

    def is_read() -> bool:
        found.append(reader.read(["in"]))
        return found[-1] is not None

    with pytest.raises(MemoryError):
        wait_until(is_read, 10)
    assert wait_until(is_read, 10)
    assert found[-1] == {"in": {0: 7}}

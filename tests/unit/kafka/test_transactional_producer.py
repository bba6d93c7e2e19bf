"""Producers with a transactional id."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from wasmline.errors import BrokerUnavailable
from wasmline.kafka import KafkaConfig, transactional_producer

IDS = [f"id-{number}" for number in range(64)]


def test_each_id_is_fenced_however_long_another_takes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_time = set()

    def create(config: KafkaConfig, name: str, settings: Mapping[str, Any], deadline: float) -> None:
        if name == "id-0":
            time.sleep(max(0.0, deadline - time.monotonic()))
            raise BrokerUnavailable("its coordinator is away", bootstrap_servers="nowhere:1")
        time.sleep(0.2)
        if time.monotonic() < deadline:
            in_time.add(name)

    monkeypatch.setattr(transactional_producer, "create_fencing_producer", create)
    config = KafkaConfig({"bootstrap.servers": "nowhere:1"})
    transactional_producer.abort_open_transactions(config, IDS, {}, 5.0)
    assert in_time == set(IDS) - {"id-0"}
    assert caplog.messages == ["cannot abort transactions that may be open, of 1 ids: id-0: its coordinator is away"]

"""What exactly-once is refused for before anything is connected."""

import json
from typing import Any

import pytest

from wasmline.consumer import ConsumerOptions
from wasmline.consumer.backends.kafka import KafkaBackend, exactly_once_probe
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.errors import InvalidConsumerOption, NotAuthorized
from wasmline.kafka import KafkaConfig
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.topic_partitions import TopicPartition


def test_unstable_reads_that_the_environment_asks_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"bootstrap.servers": "nowhere:1", "isolation.level": "read_uncommitted"}
    monkeypatch.setenv("WASMLINE_KAFKA_CONFIG", json.dumps(settings))
    KafkaBackend(ConsumerOptions(topics=("t",), group_id="g"))
    with pytest.raises(InvalidConsumerOption, match="read_committed"):
        KafkaBackend(ConsumerOptions(topics=("t",), group_id="g", delivery="exactly_once"))  # type: ignore[arg-type]


def test_a_broker_that_does_not_permit_its_test_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise NotAuthorized("nowhere:1 does not permit this: TRANSACTIONAL_ID_AUTHORIZATION_FAILED")

    monkeypatch.setattr(exactly_once_probe, "create_fencing_producer", refused)
    config = KafkaConfig({"bootstrap.servers": "nowhere:1"})
    with pytest.raises(NotAuthorized, match=r"could not be tested.*begin with wasmline.stream.j, or use at_least_once"):
        exactly_once_probe.require_exactly_once(
            config,
            "wasmline.stream.j",
            TopicPartition("t", 0),
            LazyOffsetStore(config, "g", LibrdkafkaOffsetStore()),
        )

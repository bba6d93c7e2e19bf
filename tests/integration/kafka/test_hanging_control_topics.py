"""A broker lost the markers of a transaction on a control topic: its readers name it, and do not wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.lost_markers import last_marker, lose
from wasmline.errors import HangingTransaction
from wasmline.kafka import (
    CompactedTopic,
    KafkaConfig,
    Topics,
    TopicTailer,
    TransactionalWriter,
    compacted_topic,
    topic_tailer,
)
from wasmline.kafka.transaction_requests import TransactionRequests
from wasmline.local import LocalKafka
from wasmline.local.process import wait_until
from wasmline.topic_partitions import TopicPartition

TOPIC, NAME = "_wasmline.jobs", "wasmline.job.eta"
WAIT_S = 2.0
"""Seconds after which a reader looks for the reason."""


def read_table(config: KafkaConfig) -> None:
    CompactedTopic(config, TOPIC).read()


def set_value(config: KafkaConfig) -> None:
    CompactedTopic(config, TOPIC).compare_and_set("wasmline.order.eta", lambda _: {b"eta": b"2"})


def tail(config: KafkaConfig) -> None:
    tailer = TopicTailer(config, [TOPIC])
    try:
        wait_until(lambda: list(tailer.poll()) != [], 20 * WAIT_S)
    finally:
        tailer.close()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaConfig]:
    """Yield a cluster whose control topic has a claim that was committed, and whose marker is lost."""
    with LocalKafka(tmp_path_factory.mktemp("hanging-control")) as local:
        config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers})
        Topics(config).create(TOPIC, 1, config={"cleanup.policy": "compact"})
        writer = TransactionalWriter(config, TOPIC, NAME)
        writer.write({b"eta/batch": b"1"})
        writer.close()
        with TransactionRequests(config, 30) as requests:
            assert wait_until(lambda: getattr(requests.describe(NAME), "state", "") == "CompleteCommit", 30)
            state = requests.describe(NAME)
        assert state is not None
        local.stop_node(1)
        lose(local, TopicPartition(TOPIC, 0), last_marker(state.producer_id))
        local.start_node(1)
        yield config


@pytest.mark.parametrize("read", [read_table, set_value, tail])
def test_a_transaction_that_hangs_on_a_control_topic_is_named(
    config: KafkaConfig, read: Callable[[KafkaConfig], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_topic, "REQUEST_TIMEOUT_S", WAIT_S)
    monkeypatch.setattr(topic_tailer, "HELD_CHECK_INTERVAL_S", WAIT_S)
    with pytest.raises(HangingTransaction, match=r"kafka-transactions\.sh .* abort --topic _wasmline\.jobs") as caught:
        read(config)
    assert caught.value.transactional_id == NAME
    assert caught.value.partitions == ((TOPIC, 0),)

"""The slots that a continuous stream takes of a standalone cluster, and their cores."""

from typing import Any

import pytest

from wasmline.errors import DeploymentNotFound
from wasmline.job_specs import StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.spark import core_limit
from wasmline.spark.session import whole_executors

KAFKA = KafkaConfig({"bootstrap.servers": "broker:9092"})


class CountedTopics:
    """Topics of six partitions."""

    partitions = 6

    def __init__(self, config: KafkaConfig) -> None:
        assert config is KAFKA

    def describe(self, topic: str) -> "CountedTopics":
        assert topic == "orders"
        return self


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_limit, "Topics", CountedTopics)
    monkeypatch.setattr(core_limit, "_input_topic", lambda config, stream: "orders")


def slots(**stream: Any) -> int | None:
    return core_limit.stream_slots(KAFKA, StreamSpec(transform="t", **{"trigger_interval": "1 second", **stream}))


def test_a_continuous_stream_takes_the_slots_that_it_can_use() -> None:
    assert slots() == 6
    assert slots(shards=3) == 3
    assert slots(mode="parallel") == 6
    assert slots(mode="parallel", tasks=2) == 2
    assert slots(mode="parallel", tasks=50) == 6


def test_a_stream_takes_no_more_slots_than_there_are_virtual_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedTopics, "partitions", 500)
    assert slots() == slots(shards=200) == slots(mode="parallel") == 64


def test_a_stream_that_ends_by_itself_has_no_limit() -> None:
    assert slots(trigger_interval=None) is None


def test_a_stream_whose_partitions_cannot_be_counted_is_limited_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(config: KafkaConfig, stream: StreamSpec) -> str:
        raise DeploymentNotFound("t is not deployed", name="t")

    monkeypatch.setattr(core_limit, "_input_topic", unknown)
    assert slots(mode="parallel", tasks=2) == 2
    assert slots() == 64


@pytest.mark.parametrize(
    ("tasks", "task_cpus", "executor_cores", "cores"),
    [(3, 1, None, 3), (3, 2, None, 6), (3, 1, 2, 4), (4, 1, 2, 4), (3, 2, 5, 10), (1, 1, 8, 8)],
)
def test_the_cores_are_those_of_whole_executors(
    tasks: int, task_cpus: int, executor_cores: int | None, cores: int
) -> None:
    assert whole_executors(tasks, task_cpus, executor_cores) == cores

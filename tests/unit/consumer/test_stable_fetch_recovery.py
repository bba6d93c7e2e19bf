"""Reads of a group's committed offsets while its coordinator changes."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from wasmline.consumer.backends.kafka import stable_read
from wasmline.kafka import KafkaConfig

CONFIG = KafkaConfig({"bootstrap.servers": "nowhere:1"})


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_read_is_repeated_until_the_coordinator_has_loaded_the_group(code: int) -> None:
    answers = [KafkaException(KafkaError(code)), KafkaException(KafkaError(code)), 7]

    def read(_: float) -> object:
        answer = answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    assert stable_read(CONFIG, "g", ["id"], read, time.monotonic() + 60) == 7


def test_a_coordinator_that_never_loads_the_group_is_told_of_at_the_deadline() -> None:
    def read(_: float) -> None:
        raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))

    with pytest.raises(KafkaException, match="COORDINATOR_LOAD_IN_PROGRESS"):
        stable_read(CONFIG, "g", ["id"], read, time.monotonic() + 0.2)

"""A read of a group ends with the reason why it cannot be read, and not before it could be answered."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from wasmline.errors import BrokerUnavailable, NotAuthorized
from wasmline.kafka.detached_consumer import DENIAL_CHECK_S, read_group
from wasmline.kafka.permission_check import PermissionCheck

DENIAL = SimpleNamespace(error=lambda: KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))


class Messages(deque[Any]):
    """The queue of a consumer."""

    def poll(self, timeout: float) -> Any:
        return self.popleft() if self else None


def timed_out() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_an_answer_may_take_as_long_as_the_time_out() -> None:
    asked: list[float] = []

    def read(seconds: float) -> str:
        asked.append(seconds)
        if len(asked) == 1:
            raise timed_out()
        return "found"

    assert read_group(Messages(), read, 15.0) == "found"  # type: ignore[arg-type]
    assert asked[0] == DENIAL_CHECK_S
    assert 14.0 < asked[1] <= 15.0
    asked.clear()
    with pytest.raises(KafkaException):
        read_group(Messages(), read, 0.0)  # type: ignore[arg-type]
    assert asked == [0.0]


def test_a_denial_is_the_reason_of_a_time_out_unless_a_read_has_succeeded_since() -> None:
    queue = Messages([DENIAL])
    assert read_group(queue, lambda _: "found", 1.0) == "found"  # type: ignore[arg-type]

    def read(_: float) -> str:
        raise timed_out()

    with pytest.raises(KafkaException) as caught:
        read_group(queue, read, 0.0)  # type: ignore[arg-type]
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT
    queue.append(DENIAL)
    with pytest.raises(KafkaException) as caught:
        read_group(queue, read, 1.0)  # type: ignore[arg-type]
    assert caught.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_denial_after_a_success_may_pass() -> None:
    denied, check = NotAuthorized("no", name="t"), PermissionCheck()
    assert check.is_missing(denied)
    assert not check.is_missing(BrokerUnavailable("away", bootstrap_servers="b:1"))
    check.passed()
    assert not check.is_missing(denied)

"""The outputs of a transaction: which failures are theirs, and that none of them is committed over."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from wasmline.consumer import Output
from wasmline.consumer.backends.kafka.transactions import _DeliveryReports
from wasmline.errors import OutputRefused, WasmlineError


def refused(output: Output, error: KafkaError) -> WasmlineError:
    return OutputRefused(f"{output.topic}: {error.code()}")


def deliveries() -> _DeliveryReports:
    return _DeliveryReports([Output("first", b""), Output("second", b"")], refused)


def test_outputs_that_were_delivered_or_dropped_with_an_aborted_transaction_have_not_failed() -> None:
    found = deliveries()
    found.take(0, 0, None)
    found.take(1, 0, KafkaError(KafkaError._PURGE_QUEUE))
    assert found.failures() == []
    found.require_no_failure()


def test_a_failure_is_raised_with_the_place_of_its_output() -> None:
    found = deliveries()
    found.take(1, 0, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    with pytest.raises(OutputRefused, match="second: 10") as raised:
        found.require_no_failure()
    assert raised.value.place == 1


def test_an_output_that_comes_after_its_transaction_has_failed_is_not_the_cause() -> None:
    """As after a rebalance, when the group's coordinator rejects the offsets while outputs are written."""
    found = deliveries()
    found.take(0, 0, KafkaError(KafkaError._STATE))
    assert found.failures() == []
    with pytest.raises(KafkaException, match="Erroneous state"):
        found.require_no_failure()

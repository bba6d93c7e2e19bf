"""Settings of producers that are not connected to anything."""

import pytest

from wasmline.kafka import KafkaConfig, producer

LONG = {"socket.timeout.ms": "300000", "delivery.timeout.ms": "120000", "message.timeout.ms": "120000"}


@pytest.mark.parametrize("timeout", [{}, {"transaction.timeout.ms": "10000"}, {"transaction.timeout.ms": "300000"}])
def test_time_limits_that_are_made_for_all_clients_leave_transactions_possible(timeout: dict[str, str]) -> None:
    """Such as one that the brokers' own limit asks for: transaction.max.timeout.ms."""
    config = KafkaConfig({"bootstrap.servers": "nowhere:1", **LONG})
    producer(config, **{"transactional.id": "id", **timeout}).purge()

"""What a transaction of the client raises before it begins."""

from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest

from wasmline.consumer.backends.kafka.transactions import KafkaTransactions
from wasmline.errors import BrokerUnavailable
from wasmline.kafka import KafkaConfig


def test_a_client_that_does_not_tell_its_membership_raises_an_error_of_wasmline() -> None:
    def consumer_group_metadata() -> None:
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT))

    source = SimpleNamespace(consumer=SimpleNamespace(consumer_group_metadata=consumer_group_metadata))
    config = KafkaConfig({"bootstrap.servers": "nowhere:1"})
    transactions = KafkaTransactions(config, "prefix", cast(Any, source), cast(Any, None))
    with pytest.raises(BrokerUnavailable, match="nowhere:1"):
        transactions.begin({})

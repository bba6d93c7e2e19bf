"""Kafka as a consumer's backend: confluent-kafka, with exact commit metadata through librdkafka."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from wasmline.consumer.backends.kafka.exactly_once_probe import require_exactly_once
from wasmline.consumer.backends.kafka.group_source import RESET, GroupSource, topic_partitions
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.consumer.backends.kafka.sink import KafkaSink, delivery_error
from wasmline.consumer.backends.kafka.stable_fetch_recovery import stable_read
from wasmline.consumer.backends.kafka.transaction_settings import OPEN_TIMEOUT_S, PRODUCER_SETTINGS
from wasmline.consumer.backends.kafka.transactions import (
    CommitContents,
    KafkaTransactions,
    OpenTransactionalId,
    output_topics,
)
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.kafka.config import KafkaConfig
from wasmline.renames import renamed

__all__ = [
    "OPEN_TIMEOUT_S",
    "PRODUCER_SETTINGS",
    "REQUEST_TIMEOUT_S",
    "RESET",
    "CommitContents",
    "GroupSource",
    "KafkaBackend",
    "KafkaSink",
    "KafkaTransactions",
    "LazyOffsetStore",
    "OpenTransactionalId",
    "delivery_error",
    "output_topics",
    "require_exactly_once",
    "stable_read",
    "topic_partitions",
]

if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)

REQUEST_TIMEOUT_S = DEFAULT_TIMINGS.request_timeout_s
"""Seconds that one request may take."""


class KafkaBackend:
    """One member of a group on a Kafka cluster. It connects when the consumer starts."""

    def __init__(self, options: ConsumerOptions, *, _timings: Timings = DEFAULT_TIMINGS) -> None:
        config = KafkaConfig.completed(options.kafka)
        options = replace(options, kafka=config.properties)  # validates the environment's settings, too
        offset_store = LazyOffsetStore(config, options.group_id)
        self.source = GroupSource(options, config, offset_store, timings=_timings)
        self.sink = KafkaSink(config)
        prefix = options.transactional_id or options.group_id
        self.transactions = KafkaTransactions(config, prefix, self.source, offset_store, timings=_timings)

    def use_columns(self) -> None:
        from wasmline.kafka.compiled_columns import compiled_columns

        self.source.compiled = self.sink.compiled = self.transactions.compiled = compiled_columns()

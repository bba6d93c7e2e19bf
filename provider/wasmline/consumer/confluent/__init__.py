"""The real cluster behind the consumer: confluent-kafka, and exact commit metadata beside it."""

from __future__ import annotations

from dataclasses import replace

from wasmline.consumer.confluent.door import GroupDoor
from wasmline.consumer.confluent.sink import ConfluentSink
from wasmline.consumer.confluent.source import ConfluentSource
from wasmline.consumer.confluent.transactions import ConfluentTransactions
from wasmline.consumer.options import ConsumerOptions
from wasmline.kafka.config import KafkaConfig

__all__ = ["ConfluentBackend"]


class ConfluentBackend:
    """One member of a group on a Kafka cluster. Nothing is connected before the consumer begins."""

    def __init__(self, options: ConsumerOptions) -> None:
        config = KafkaConfig.completed(options.kafka)
        options = replace(options, kafka=config.properties)  # what the environment adds is checked, too
        door = GroupDoor(config, options.group_id)
        self.source = ConfluentSource(options, config, door)
        self.sink = ConfluentSink(config)
        prefix = options.transactional_id or options.group_id
        self.transactions = ConfluentTransactions(config, prefix, self.source, door)

"""Clients of Kafka: shared configuration, topics, offsets, bounded reads, and durable writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wasmline.kafka.compacted_topic import CompactedTopic, TopicRecord, TransactionalWriter
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.consumer_group_offsets import ConsumerGroups
from wasmline.kafka.producer import ANY_PARTITION, RecordWriter, produce_all, producer
from wasmline.kafka.topic_reader import follow, read_range, read_record, read_to_end
from wasmline.kafka.topic_tailer import TopicTailer
from wasmline.kafka.topics import TopicInfo, Topics
from wasmline.renames import renamed

__all__ = [
    "ANY_PARTITION",
    "CompactedTopic",
    "ConsumerGroups",
    "KafkaConfig",
    "RecordWriter",
    "TopicInfo",
    "TopicRecord",
    "TopicTailer",
    "Topics",
    "TransactionalWriter",
    "follow",
    "produce_all",
    "producer",
    "read_range",
    "read_record",
    "read_to_end",
]

if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)

"""The door to Kafka: one configuration for every client, topics and offsets, reading to an end, durable writing."""

from __future__ import annotations

from wasmline.kafka.admin import TopicInfo, Topics
from wasmline.kafka.compacted import CompactedTopic, TransactionalWriter
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.follower import Follower
from wasmline.kafka.groups import ConsumerGroups
from wasmline.kafka.producer import RecordWriter, produce_all, producer
from wasmline.kafka.reader import read_slice, read_to_end

__all__ = [
    "CompactedTopic",
    "ConsumerGroups",
    "Follower",
    "KafkaConfig",
    "RecordWriter",
    "TopicInfo",
    "Topics",
    "TransactionalWriter",
    "produce_all",
    "producer",
    "read_slice",
    "read_to_end",
]

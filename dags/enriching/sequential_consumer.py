"""A sequential consumer: one for each partition, which polls, calls and commits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import urllib3
from confluent_kafka import Consumer, KafkaException, TopicPartition

from wasmline.kafka import KafkaConfig

POLL_TIMEOUT_S = 30.0
"""Seconds to wait for an expected record."""


def consume(config: KafkaConfig, topic: str, ranges: Mapping[int, tuple[int, int]], url: str) -> None:
    """Request the customer of each record of ``{partition: (from, to)}``; the partitions are read concurrently."""
    with ThreadPoolExecutor(len(ranges)) as threads:
        reading = [threads.submit(_consume, config, topic, each, *bounds, url) for each, bounds in ranges.items()]
        for thread in reading:
            thread.result()


def _consume(config: KafkaConfig, topic: str, partition: int, begin: int, end: int, url: str) -> None:
    consumer = Consumer(config.client(**{"group.id": f"{topic}.plain", "enable.auto.commit": "false"}))
    with closing(consumer), urllib3.PoolManager() as service:
        consumer.assign([TopicPartition(topic, partition, begin)])
        while begin < end:
            message = consumer.poll(POLL_TIMEOUT_S)
            if message is None:
                raise TimeoutError(
                    f"{topic}-{partition} gave no record at offset {begin} within {POLL_TIMEOUT_S:.0f} s"
                )
            if error := message.error():
                raise KafkaException(error)
            service.request("GET", f"{url}/customers/{json.loads(message.value() or b'')['customer']}")
            consumer.commit(message=message, asynchronous=True)
            begin = (message.offset() or 0) + 1

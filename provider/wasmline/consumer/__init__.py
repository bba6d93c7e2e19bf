"""The key-parallel consumer: concurrency per key, not per partition.

def charge(record):
    requests.post(URL, data=record.value).raise_for_status()

ParallelConsumer(ConsumerOptions(topics=("orders",), group_id="billing", max_concurrency=100)).run(charge)
"""

from __future__ import annotations

from wasmline.consumer.handlers import PerThread
from wasmline.consumer.health import ConsumerHealth, State
from wasmline.consumer.options import ConsumerOptions, Delivery, NullKeys, Ordering, Retry, RetryPolicy
from wasmline.consumer.parallel_consumer import ParallelConsumer
from wasmline.consumer.records import ConsumedRecord, Outcome, Output

__all__ = [
    "ConsumedRecord",
    "ConsumerHealth",
    "ConsumerOptions",
    "Delivery",
    "NullKeys",
    "Ordering",
    "Outcome",
    "Output",
    "ParallelConsumer",
    "PerThread",
    "Retry",
    "RetryPolicy",
    "State",
]

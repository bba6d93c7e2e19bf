"""The key-parallel consumer: concurrency per key, not per partition.

def charge(record):
    requests.post(URL, data=record.value).raise_for_status()

ParallelConsumer(ConsumerOptions(topics=("orders",), group_id="billing", max_concurrency=100)).run(charge)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wasmline.consumer.handler_adapters import HandlerFactory
from wasmline.consumer.health import ConsumerHealth, State
from wasmline.consumer.options import ConsumerOptions, Delivery, NullKeys, Ordering, Retry, RetryPolicy
from wasmline.consumer.parallel_consumer import ParallelConsumer
from wasmline.consumer.records import BatchResult, ConsumedRecord, Output
from wasmline.renames import renamed

__all__ = [
    "BatchResult",
    "ConsumedRecord",
    "ConsumerHealth",
    "ConsumerOptions",
    "Delivery",
    "HandlerFactory",
    "NullKeys",
    "Ordering",
    "Output",
    "ParallelConsumer",
    "Retry",
    "RetryPolicy",
    "State",
]

if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)

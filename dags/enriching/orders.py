"""Synthetic orders of many customers, a few of them unknown to the service."""

from __future__ import annotations

import json
from collections.abc import Iterator

from wasmline.kafka.producer import Record

CUSTOMERS = 300
UNKNOWN = "nobody"

UNKNOWN_EVERY = 500
"""One of this many orders has an unknown customer."""


def orders(first: int, count: int) -> Iterator[Record]:
    """Yield ``count`` orders, numbered from ``first``; the key is the customer, whose orders stay in order."""
    for number in range(first, first + count):
        known = (number - first) % UNKNOWN_EVERY != UNKNOWN_EVERY - 1
        customer = f"c{number % CUSTOMERS}" if known else UNKNOWN
        order = {"order": number, "customer": customer, "cents": 100 + number * 37 % 9_900}
        yield customer.encode(), json.dumps(order).encode(), None, None

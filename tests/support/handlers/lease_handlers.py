"""Handlers that leases name: ``lease_handlers:copy`` and others."""

from __future__ import annotations

import asyncio
import os
import threading
import time

from wasmline.consumer import ConsumedRecord, Output
from wasmline.errors import TerminalFailure

SLOWEST = 5_000
"""Microseconds that a record takes at most."""

POISON = b"poison"

released = threading.Event()
"""Lets what waits for ever return, so that a test can end."""


def copy(record: ConsumedRecord) -> Output:
    """Write a record's place to ``TOPIC.out``, after a while that its offset decides."""
    time.sleep(_seconds(record))
    return _output(record)


async def copy_async(record: ConsumedRecord) -> Output:
    await asyncio.sleep(_seconds(record))
    return _output(record)


def relay(record: ConsumedRecord) -> Output:
    """Copy a record with the time of its writing, from which a reader knows how long it was on its way."""
    return Output(f"{record.topic}.out", record.value, record.key, timestamp=record.timestamp)


def wait_for_ever(record: ConsumedRecord) -> None:
    released.wait()


def fussy(record: ConsumedRecord) -> Output:
    if record.value == POISON:
        raise TerminalFailure("poison")
    return _output(record)


def _seconds(record: ConsumedRecord) -> float:
    return (record.offset * 7919 % SLOWEST) / 1e6


def _output(record: ConsumedRecord) -> Output:
    headers = [("worker", str(os.getpid()).encode())]
    return Output(f"{record.topic}.out", f"{record.partition}@{record.offset}".encode(), record.key, headers)

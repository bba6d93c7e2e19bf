"""A job of leases on a stream of records while faults befall it, and how long its outputs stay away by that."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from support.leases.lease_harness import LeaseHarness
from support.record_traffic import Feed, Record, Watch
from support.rounds import resumed_after

RATE = 300
"""Records that are written in a second, whatever happens."""

KEYS = 40

NOT_IDEMPOTENT = {"enable.idempotence": "false"}
"""Of the producer: while leaders change, an idempotent one of librdkafka takes more than a core, which brokers need."""


class OutageTimer:
    """How long a read_committed reader saw no output of some partition, for each fault."""

    def __init__(self, harness: LeaseHarness) -> None:
        self.harness = harness
        self._seconds: list[float] = []
        self._times: dict[int, list[float]] = defaultdict(list)
        self._newest: dict[int, int] = {}

    def seen(self, message: Any, now: float) -> None:
        partition, offset = map(int, message.value().split(b"@"))
        self._newest[partition] = max(offset, self._newest.get(partition, -1))
        self._times[partition].append(now)

    def after(self, fault: Callable[[], object], limit: float | None = None) -> None:
        """Do something to the job, and see outputs of what was written since then, as ``resumed_after`` does."""
        began = time.time()
        fault()
        before = self._last_written()
        self.harness.until(
            lambda: all(offset > before[partition] for partition, offset in self._last_written().items()),
            "records that are written again",
        )
        self.go_on()
        stall = max(
            after - before
            for times in self._times.values()
            for before, after in pairwise([began, *(each for each in list(times) if each > began)])
        )
        self._seconds.append(stall)
        resumed_after(stall, limit)

    def go_on(self) -> None:
        """See the output of what was written last to each partition."""
        last = self._last_written()
        self.harness.until(
            lambda: all(self._newest.get(partition, -1) >= offset for partition, offset in last.items()),
            "outputs of what was written last",
        )

    def _last_written(self) -> dict[int, int]:
        """Return the highest offset by partition of those that are known to be written."""
        last: dict[int, int] = defaultdict(lambda: -1)
        for partition, offset in list(self.harness.written):
            last[partition] = max(offset, last[partition])
        return last

    def tell(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Print how long they were, whether or not output is captured."""
        with capsys.disabled():
            sys.stdout.write(f" seconds without an output: {', '.join(f'{each:.1f}' for each in self._seconds)} ")


def in_sync(client: AdminClient) -> bool:
    """Say whether every partition has all its replicas: only then can it do without any one of them."""
    try:
        topics = client.list_topics(timeout=10).topics.values()
    except KafkaException:
        return False  # it asked the broker that had only just gone, or come back
    return all(len(each.isrs) == len(each.replicas) for topic in topics for each in topic.partitions.values())


@contextmanager
def at_work(harness: LeaseHarness) -> Iterator[OutageTimer]:
    """Write records for as long as this lasts; then see the output of each, once and in its key's order."""

    def record(number: int) -> Record:
        return b"key-%d" % (number % KEYS), b"value"

    def written(_: int, message: Any) -> None:
        harness.wrote(message)

    stalls = OutageTimer(harness)
    with Watch(harness.config, [harness.output], stalls.seen):
        with Feed(harness.config, harness.topic, RATE, record, written, **NOT_IDEMPOTENT):
            harness.until(lambda: bool(harness.written), "the first record")
            stalls.go_on()
            yield stalls
        harness.finish()

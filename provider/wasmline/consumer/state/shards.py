"""Per-key queues of one partition; at most one run of records per queue is in flight. Pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING

from wasmline.consumer.records import ConsumedRecord

if TYPE_CHECKING:
    from wasmline.consumer.state.calls import Batch

MAX_SPARE_SHARDS = 1_000
"""Empty shards kept for new keys: creating one per record would dominate the cost of this module."""


class Shard:
    """Records that run in order. It is locked while some are in flight, and rests until a retry is due."""

    __slots__ = ("alone", "batch", "error", "head", "in_flight", "is_lone", "key", "records")

    def __init__(self) -> None:
        self.key: Hashable = None
        self.records: deque[ConsumedRecord] = deque()
        self.in_flight = 0
        """Records of the run in flight."""
        self.batch: Batch | None = None
        """The batch that contains the run."""
        self.head: ConsumedRecord | None = None
        """The first record of the last run."""
        self.error: Exception | None = None
        """The last error of the first record."""
        self.alone = 0
        """How many of the first records run one by one, because a run of them failed as a whole."""
        self.is_lone = False
        """Whether the run in flight is one of those."""


class Shards:
    """The shards of one partition, in one assignment. Those that may run are served in turn.

    A shard that is locked when its partition is revoked stays locked until its run returns: ``successor`` passes it to
    the partition's next assignment, so that no key has two runs in flight.
    """

    __slots__ = ("_delayed", "_floor", "_numbers", "_ready", "_shards", "_spare", "size")

    def __init__(self, locked: Sequence[Shard] = ()) -> None:
        self._shards: dict[Hashable, Shard] = {shard.key: shard for shard in locked}
        self._spare: list[Shard] = []
        self._ready: deque[Shard] = deque()
        self._delayed: list[tuple[float, int, Shard]] = []
        self._numbers = count()
        self._floor = 0
        """No ready shard begins below this offset."""
        self.size = 0
        """Records that are queued."""

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards.values())

    def __len__(self) -> int:
        return len(self._shards)

    @property
    def ready(self) -> int:
        """The number of shards that may run."""
        return len(self._ready)

    @property
    def due(self) -> float | None:
        """The time at which the next retry is due, if one is waiting."""
        return self._delayed[0][0] if self._delayed else None

    def is_due(self, now: float) -> bool:
        """Return whether a retry is due."""
        return bool(self._delayed) and self._delayed[0][0] <= now

    def add(self, key: Hashable, record: ConsumedRecord) -> None:
        """Queue a record at the end of its shard."""
        shard = self._shards.get(key)
        if shard is None:
            shard = self._shards[key] = self._spare.pop() if self._spare else Shard()
            shard.key = key
        shard.records.append(record)
        self.size += 1
        if len(shard.records) == 1 and not shard.in_flight:
            self._enable(shard)

    def take(self, limit: int, now: float, below: int | None = None) -> tuple[list[Shard], list[ConsumedRecord]]:
        """Lock the shards that may run, in turn, and return them and up to ``limit`` of their records, shard by shard.

        ``below`` restricts this to records with a lower offset.
        """
        shards: list[Shard] = []
        taken: list[ConsumedRecord] = []
        while self._delayed and self._delayed[0][0] <= now:
            self._enable(heapq.heappop(self._delayed)[2])
        ready = self._ready
        if not ready or (below is not None and below <= self._floor):
            return shards, taken
        for _ in range(len(ready)):
            shard = ready.popleft()
            if below is not None and shard.records[0].offset >= below:
                ready.append(shard)
                continue
            shard.is_lone = shard.alone > 0
            if shard.is_lone:
                if shards:
                    ready.appendleft(shard)
                    break
                shard.alone -= 1
                limit = 1
            records = _run(shard.records, limit, below)
            shard.in_flight, shard.head = len(records), records[0]
            shards.append(shard)
            taken += records
            limit -= shard.in_flight
            if not limit:
                break
        if not shards:
            self._floor = min(shard.records[0].offset for shard in ready)
        self.size -= len(taken)
        return shards, taken

    def take_following(self, shard: Shard, limit: int, below: int | None = None) -> list[ConsumedRecord]:
        """Return up to ``limit`` more records of a shard that was just dispatched, to run one after the other."""
        records = _run(shard.records, limit, below)
        self.size -= len(records)
        return records

    def advance(self, shard: Shard, batch: Batch) -> None:
        """Set ``batch``, of one record, as the one in flight of a locked shard."""
        shard.batch, shard.head, shard.error = batch, batch.records[0], None

    def unlock(self, shard: Shard) -> None:
        """Let a shard run again: its run is done. Without more records it may be reused for another key."""
        shard.in_flight = 0
        shard.error = shard.batch = None
        if shard.records:
            self._enable(shard)
        else:
            del self._shards[shard.key]
            shard.key = shard.head = None
            if len(self._spare) < MAX_SPARE_SHARDS:
                self._spare.append(shard)

    def requeue_failed(self, shard: Shard, records: Sequence[ConsumedRecord], *, due: float, error: Exception) -> None:
        """Queue records that were in flight before all others of their shard; they may run again when ``due``."""
        self.requeue(shard, records)
        shard.in_flight, shard.error, shard.head, shard.batch = 0, error, records[0], None
        heapq.heappush(self._delayed, (due, next(self._numbers), shard))

    def requeue(self, shard: Shard, records: Sequence[ConsumedRecord]) -> None:
        """Queue records that were not begun before all others of their shard, which stays locked."""
        shard.records.extendleft(reversed(records))
        self.size += len(records)

    def put_back(self, shard: Shard, records: Sequence[ConsumedRecord]) -> None:
        """Queue a run that was not begun before all others of its shard, which is the next that may run."""
        self.requeue(shard, records)
        shard.in_flight, shard.batch = 0, None
        shard.alone += shard.is_lone
        self._enable(shard)
        self._ready.rotate(1)

    def successor(self) -> Shards:
        """Return the shards of the partition's next assignment: empty, except for the locks of runs in flight."""
        locked = [shard for shard in self if shard.in_flight]
        for shard in locked:
            shard.records.clear()
            shard.alone = 0
        return Shards(locked)

    def _enable(self, shard: Shard) -> None:
        self._ready.append(shard)
        self._floor = min(self._floor, shard.records[0].offset)


def _run(records: deque[ConsumedRecord], limit: int, below: int | None) -> list[ConsumedRecord]:
    """Take up to ``limit`` records off the front, as far as they are ``below``."""
    if below is None and limit == 1:
        return [records.popleft()]
    if below is not None:
        limit = sum(1 for _ in takewhile(lambda record: record.offset < below, islice(records, limit)))
    return [records.popleft() for _ in range(min(limit, len(records)))]

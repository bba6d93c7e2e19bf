"""What an outsider saw of every handler, in one file that all members append to, and what of it must not be.

A line is ``kind pid partition offset time key``, written with one append, so the order of the lines is the order of
the events, in whatever process they happened. S: a handler begins, E: it ends, F: it fails and the record is tried
again, D: it fails for the last time.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

Coordinates = tuple[int, int]
Shard = tuple[int, bytes]


class Journal:
    """The file, for those who write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._pid = os.getpid()

    def write(self, kind: str, partition: int, offset: int, key: bytes) -> None:
        line = f"{kind} {self._pid} {partition} {offset} {time.monotonic():.4f} {key.hex()}\n"
        os.write(self._file, line.encode())


class Left(NamedTuple):
    """What the broker had of a partition at some moment."""

    offset: int
    highest: int
    incompletes: frozenset[int]

    def has(self, offset: int) -> bool:
        return offset < self.offset or (offset <= self.highest and offset not in self.incompletes)


class Ledger:
    """Reads the file. Whatever breaks a promise is in ``wrong``, as a sentence.

    - No handler begins while another one has a record of the same key.
    - No handler begins before every earlier record of its key is done.
    - No record that is done is handled again, but those that a member which was killed, frozen, or cut off from the
      brokers had finished and not committed; and it had finished them at most ``window`` seconds before.
    """

    def __init__(self, path: Path, *, window: float) -> None:
        self.wrong: list[str] = []
        self.again = 0
        """Records that were handled once more after a crash, as may be."""
        self.done: dict[Coordinates, float] = {}
        self.failures = 0
        self._window = window
        self._path = path
        path.touch()
        self._read = 0
        self._shards: dict[Shard, list[int]] = defaultdict(list)
        self._reached: dict[Shard, int] = defaultdict(int)
        """How many of a shard's first records are done."""
        self._open: dict[Shard, dict[int, int]] = defaultdict(dict)
        """By shard, the offset that each process has."""
        self._finished: dict[int, dict[Coordinates, float]] = defaultdict(dict)
        self._excused: set[Coordinates] = set()
        self._ghosts: set[int] = set()
        """Processes that were frozen, and may not have heard yet that their partitions are somebody else's."""
        self._cut_off: float | None = None

    def expect(self, partition: int, offset: int, key: bytes) -> None:
        """Note a record that was written."""
        insort(self._shards[partition, key], offset)

    @property
    def missing(self) -> int:
        """How many records are not done."""
        self.read()
        return sum(map(len, self._shards.values())) - len(self.done)

    def lost(self) -> list[Coordinates]:
        every = {(partition, offset) for (partition, _), offsets in self._shards.items() for offset in offsets}
        return sorted(every - self.done.keys())

    def read(self) -> None:
        """Take in what was written since the last time."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            lines = file.read().split(b"\n")
        for line in lines[:-1]:
            kind, pid, partition, offset, when, *key = line.decode().split(" ")
            shard = (int(partition), bytes.fromhex(key[0]))
            self._event(kind, int(pid), shard, int(offset), float(when))
            self._read += len(line) + 1

    def ended(
        self, pid: int, left: Mapping[int, Left] | None, *, comes_back: bool = False, hanging: bool = False
    ) -> None:
        """A process is dead, or frozen and ``comes_back``, and ``left`` is what the broker had after that.

        None: it left in order, and everything that it finished is committed. ``hanging``: a transaction of one of its
        partitions hung, and may have hung of others; of those nothing could be committed for as long as it did, nor of
        any since the brokers were ``cut_off``.
        """
        self.read()
        now = time.monotonic()
        since = now - self._window if self._cut_off is None else self._cut_off
        for held in self._open.values():
            if held.pop(pid, None) is not None and left is None:
                self.wrong.append(f"{pid} left while it had a record")
        for (partition, offset), when in self._finished.pop(pid, {}).items():
            if left is None or _has(left, partition, offset):
                continue
            self._excused.add((partition, offset))
            if when < since and not hanging:
                self.wrong.append(f"{partition}@{offset} was done {now - when:.1f} s before {pid} ended, not committed")
        if comes_back:
            self._ghosts.add(pid)

    def reopens(self, left: Mapping[int, Left]) -> None:
        """A process that was frozen goes on, exactly once, and the broker has ``left``.

        Until it is heard, it may fence the owner of its partitions, whose open transactions are aborted by that.
        """
        self.forget(left)
        self._cut_off = time.monotonic()

    def heard(self, pid: int) -> None:
        """A process that was frozen is a member again, like any other."""
        self.read()
        self._ghosts.discard(pid)
        self._cut_off = None

    def forget(self, left: Mapping[int, Left]) -> None:
        """Somebody else has committed ``left``: what is not in it may be done again."""
        self.read()
        self._excused |= {(part, offset) for part, offset in self.done if not _has(left, part, offset)}

    def cut_off(self) -> None:
        """From now on, and ``window`` seconds before, what is done may be done again."""
        self.read()
        self._cut_off = time.monotonic() - self._window
        self._excuse()

    def back(self) -> None:
        """What is done from now on is done once."""
        self.read()
        self._cut_off = None

    def _excuse(self) -> None:
        assert self._cut_off is not None
        for finished in self._finished.values():
            self._excused |= {where for where, when in finished.items() if when >= self._cut_off}

    def _event(self, kind: str, pid: int, shard: Shard, offset: int, when: float) -> None:
        where = (shard[0], offset)
        if kind == "S":
            if pid not in self._ghosts:
                self._begin(pid, shard, offset)
            return
        mine = self._open[shard].get(pid) == offset
        if mine:
            del self._open[shard][pid]
        if kind == "F":
            self.failures += 1
            return
        self.done.setdefault(where, when)
        if mine:
            self._finished[pid][where] = when
        if not mine or self._cut_off is not None:
            self._excused.add(where)  # a ghost finished it, or who did may be unable to say so
        offsets = self._shards[shard]
        while self._reached[shard] < len(offsets) and (shard[0], offsets[self._reached[shard]]) in self.done:
            self._reached[shard] += 1

    def _begin(self, pid: int, shard: Shard, offset: int) -> None:
        where = f"{shard[0]}@{offset} of key {shard[1].decode()!r}"
        if others := self._open[shard]:
            self.wrong.append(f"{where} began in {pid} while others were at it: {others}")
        others[pid] = offset
        if bisect_left(self._shards[shard], offset) > self._reached[shard]:
            self.wrong.append(f"{where} began before the records of its key that come first were done")
        if (shard[0], offset) in self.done:
            if (shard[0], offset) in self._excused:
                self.again += 1
            else:
                self.wrong.append(f"{where} was done once more by {pid}, though nothing had happened")


def _has(left: Mapping[int, Left], partition: int, offset: int) -> bool:
    return partition in left and left[partition].has(offset)

"""Which records a topic has, and what a run did with them: how long it took, and what it got wrong."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from consumer.calls import Call

from support.java_peer.java_peer import Coordinates, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one contestant. ``seconds`` are from the first call of its handler to the end of the last.

    ``broken`` counts records that were handed out after a later one of their key, or while another was in flight.
    ``handler_ms`` is the mean time of a call, and ``possible`` the least seconds that calls as long as these need,
    which nobody asks the Java library. ``cpu_us`` is the CPU time a record of the contestant's process
    from the first call to the last, with that of noting the calls.
    """

    seconds: float
    records: int
    broken: int
    lost: int
    duplicated: int
    handler_ms: float
    cpu_us: float
    possible: float | None = None


@dataclass(frozen=True)
class Ledger:
    """A topic's records: the key at each of its coordinates."""

    keys: Mapping[Coordinates, bytes]

    def bound(self, seconds: Mapping[Coordinates, float], concurrency: int) -> float:
        """Return the least time for these calls: the largest sum of a key, or the whole by ``concurrency``."""
        sums: dict[tuple[int, bytes], float] = defaultdict(float)
        for at, took in seconds.items():
            sums[at[0], self.keys[at]] += took
        return max(max(sums.values()), sum(sums.values()) / concurrency)

    def judge(self, calls: Sequence[Call], concurrency: int, *, cpu_s: float, part: bool = False) -> Run:
        """Return what these calls amount to, and the CPU time. ``part``: not all records were asked for."""
        handed = [(call.partition, call.offset) for call in calls]
        took = {at: call.end - call.begin for at, call in zip(handed, calls, strict=True)}
        return Run(
            seconds=max(call.end for call in calls) - min(call.begin for call in calls),
            records=len(took),
            broken=self._broken(calls),
            lost=0 if part else self._lost(handed),
            duplicated=_repeated(handed),
            handler_ms=statistics.fmean(took.values()) * 1_000,
            possible=self.bound(took, concurrency),
            cpu_us=cpu_s / len(took) * 1e6,
        )

    def judge_java(self, outcome: Outcome) -> Run:
        """Return what the Java peer says that it did."""
        return Run(
            seconds=outcome.seconds,
            records=len(set(outcome.handed)),
            broken=outcome.out_of_order + outcome.overlapping,
            lost=self._lost(outcome.handed),
            duplicated=max(outcome.duplicates, _repeated(outcome.handed)),
            handler_ms=outcome.worked / len(outcome.handed) * 1_000,
            cpu_us=outcome.cpu_s / len(outcome.handed) * 1e6,
        )

    def _lost(self, handed: Collection[Coordinates]) -> int:
        return len(self.keys.keys() - set(handed))

    def _broken(self, calls: Sequence[Call]) -> int:
        """Count the calls that began before all earlier records of their key were through."""
        broken = 0
        ends: dict[tuple[int, bytes], float] = {}
        highest: dict[tuple[int, bytes], int] = {}
        for call in sorted(calls):
            shard = call.partition, self.keys[call.partition, call.offset]
            broken += call.begin < ends.get(shard, 0.0) or call.offset < highest.get(shard, -1)
            ends[shard] = max(call.end, ends.get(shard, 0.0))
            highest[shard] = max(call.offset, highest.get(shard, -1))
        return broken


def _repeated(handed: Sequence[Coordinates]) -> int:
    return sum(count - 1 for count in Counter(handed).values())

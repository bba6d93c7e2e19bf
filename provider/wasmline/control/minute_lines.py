"""Keeps the figures of each transform for the last hour, one sample a minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from wasmline.partition_status import PartitionStatus

MINUTES = 60

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSample:
    """The figures at the end of a minute: records per second, lag, and dead letters of the generation so far."""

    rate: float
    lag: int
    dead_letters: int

    @classmethod
    def of(cls, partitions: Iterable[PartitionStatus]) -> LineSample:
        """Return the sums over some partitions. One that does not run processes nothing."""
        known = list(partitions)
        return cls(
            rate=sum(each.rate for each in known if each.state == "running"),
            lag=sum(each.lag for each in known),
            dead_letters=sum(each.generation_dead_letters for each in known),
        )


class MinuteLine:
    """The samples of one transform. Pure."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, LineSample]] = deque(maxlen=MINUTES)

    def record(self, time_ms: int, sample: LineSample) -> None:
        """Take the sample of a moment, which is its minute's until a later one comes; an earlier minute is left out."""
        minute = time_ms // MINUTE_MS
        if self._samples and self._samples[-1][0] == minute:
            self._samples[-1] = (minute, sample)
        elif not self._samples or self._samples[-1][0] < minute:
            self._samples.append((minute, sample))

    def last_hour(self, now_ms: int) -> list[LineSample | None]:
        """Return one sample for each of the last MINUTES minutes, oldest first; None where there is none."""
        by_minute = dict(self._samples)
        return [by_minute.get(minute) for minute in minutes(now_ms)]


def minutes(now_ms: int) -> range:
    """Return the last MINUTES minutes of Unix time, the current one included."""
    last = now_ms // MINUTE_MS
    return range(last - MINUTES + 1, last + 1)

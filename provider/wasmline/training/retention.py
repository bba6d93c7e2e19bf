"""Warns of records of a training that retention is about to remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from wasmline.offset_ranges import OffsetRanges, intersection_of, ranges_of

if TYPE_CHECKING:
    from wasmline.kafka import Topics

HOUR_MS = 60 * 60 * 1000
NOTICE_MS = 24 * HOUR_MS
NOTICE_SHARE = 0.1
"""A warning comes a day before the first record expires, or a tenth of the retention, whichever is longer."""

INFINITE = -1
"""The value of ``retention.ms`` and ``retention.bytes`` with which nothing is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The settings of a topic that decide when its records are removed."""

    retention_ms: int
    retention_bytes: int
    cleanup_policy: str

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Retention:
        """Return those among a topic's settings."""
        return cls(
            retention_ms=int(settings["retention.ms"]),
            retention_bytes=int(settings["retention.bytes"]),
            cleanup_policy=settings["cleanup.policy"],
        )

    @property
    def deletes(self) -> bool:
        """Whether records are removed by their age or the size of their partition."""
        return "delete" in self.cleanup_policy

    @property
    def notice_ms(self) -> int:
        """How long before its records expire a slice is warned of."""
        return max(NOTICE_MS, int(self.retention_ms * NOTICE_SHARE))

    def expires_before_ms(self, now_ms: int) -> int | None:
        """Return the Unix time of which earlier records expire within the notice; None if no record expires."""
        if not self.deletes or self.retention_ms == INFINITE:
            return None
        return now_ms + self.notice_ms - self.retention_ms


def retention_warnings(
    topics: Topics, topic: str, slices: Mapping[str, OffsetRanges], *, now_ms: int
) -> tuple[str, ...]:
    """Return ``removal_warnings`` of a topic. Raises TopicNotFound, BrokerUnavailable."""
    if not slices:
        return ()
    settings = topics.settings([topic])[topic]
    return tuple(removal_warnings(topic, settings, slices, partial(topics.offsets_for_time, topic), now_ms=now_ms))


def removal_warnings(
    topic: str,
    settings: Mapping[str, str] | None,
    slices: Mapping[str, OffsetRanges],
    offsets_for_time: Callable[[int], Mapping[int, int]],
    *,
    now_ms: int,
) -> Iterator[str]:
    """Yield a warning for each of ``slices``, by name, of which records are about to be removed, and for the topic.

    The slices are those whose rows are not kept. ``settings`` are the topic's, None if they are not readable;
    ``offsets_for_time`` returns the first offsets of a Unix time or later.
    """
    if settings is None:
        yield f"{topic}: this client may not read its settings, so when its records are removed is not known"
        return
    retention = Retention.of(settings)
    moment = retention.expires_before_ms(now_ms)
    if moment is not None:
        expiring = {str(partition): (0, offset) for partition, offset in offsets_for_time(max(moment, 0)).items()}
        for name, offsets in slices.items():
            if count := sum(end - start for _, start, end in ranges_of(intersection_of(offsets, expiring))):
                yield (
                    f"{topic}: {count:,} offsets of {name} expire within {retention.notice_ms / HOUR_MS:g} hours "
                    f"(retention.ms is {retention.retention_ms}), and the model cannot be rebuilt from the topic then"
                )
    if retention.deletes and retention.retention_bytes != INFINITE:
        yield (
            f"{topic}: its partitions keep {retention.retention_bytes:,} bytes (retention.bytes), so when records are "
            "removed cannot be foretold"
        )
    if "compact" in retention.cleanup_policy:
        yield f"{topic}: it is compacted, so when a record is removed for a later one of its key cannot be foretold"

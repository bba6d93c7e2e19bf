"""Says when a growing topic is worth an event, with the offsets that were written since the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wasmline.errors import InvalidJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """The end offsets of a topic at a moment, by partition. ``topic_id`` changes when it is recreated."""

    topic_id: str
    ends: dict[str, int]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventThresholds:
    """An event is due after ``every_records`` records, or ``every_seconds`` after the last one if any was written."""

    every_records: int | None = None
    every_seconds: float | None = None

    def __post_init__(self) -> None:
        limits = [each for each in (self.every_records, self.every_seconds) if each is not None]
        if not limits or not all(limit > 0 for limit in limits):
            raise InvalidJob(
                "every_records or every_seconds must be set, and above 0: "
                f"got {self.every_records} and {self.every_seconds}"
            )

    def is_due(self, last: TopicEnds, now: TopicEnds) -> bool:
        """Return whether an event is due; ``last`` is the topic at the last one."""
        records = sum(end - start for start, end in new_offsets(last, now).values())
        enough = self.every_records is not None and records >= self.every_records
        late = self.every_seconds is not None and now.at_ms - last.at_ms >= self.every_seconds * 1000
        return records > 0 and (enough or late)


def new_offsets(last: TopicEnds, now: TopicEnds) -> Mapping[str, tuple[int, int]]:
    """Return the half-open range of each partition that has grown; a recreated topic is new from its beginning."""
    before = last.ends if last.topic_id == now.topic_id else {}
    return {
        partition: (before.get(partition, 0), end)
        for partition, end in now.ends.items()
        if before.get(partition, 0) < end
    }

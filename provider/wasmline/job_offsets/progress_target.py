"""Targets of a change of progress, as users write them: a word, an offset, ``+N``, ``-N`` or a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wasmline.errors import InvalidJob
from wasmline.job_offsets.progress_change import JobProgress
from wasmline.kafka import KafkaConfig, Topics
from wasmline.moments import parse_moment

WORDS = {"start": "start", "earliest": "start", "end": "end", "latest": "end"}
"""``earliest`` and ``latest`` are the words of Kafka's tools."""

RELATIVE = re.compile(r"[+-][0-9]{1,18}")
OFFSET = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressTarget:
    """Where to continue: the start or the end of a topic, an offset, records after or before the progress, or a time.

    partitions: only these; empty for all. time_ms: Unix milliseconds, if the text is a time.
    """

    text: str
    partitions: tuple[int, ...] = ()
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str, partitions: Collection[int] = ()) -> ProgressTarget:
        """Return the target that a text names. Raises InvalidJob for another text."""
        time_ms = None
        text = WORDS.get(text, text)
        if text not in WORDS and not RELATIVE.fullmatch(text) and not OFFSET.fullmatch(text):
            try:
                time_ms = parse_moment(text)
            except ValueError:
                kinds = "neither start, end, an offset, +N, -N nor a time such as 2026-11-26T16:00:00Z"
                raise InvalidJob(f"{text!r} is {kinds}") from None
        return cls(text=text, partitions=tuple(partitions), time_ms=time_ms)

    def resolve(self, config: KafkaConfig, found: JobProgress) -> Mapping[int, int]:
        """Return the next offset to read of each partition. ``+N`` and ``-N`` end at the bounds of the topic.

        Raises InvalidJob for an unknown partition, and for ``+N`` and ``-N`` without known progress.
        """
        topic = found.topic
        for each in self.partitions:
            if each not in topic.begins:
                raise InvalidJob(f"{topic.name} has no partition {each}")
        times = Topics(config).offsets_for_time(topic.name, self.time_ms) if self.time_ms is not None else {}
        wanted = {}
        for each in self.partitions or sorted(topic.begins):
            begin, end = topic.begins[each], topic.ends.get(each, 0)
            if self.time_ms is not None:
                wanted[each] = times.get(each, end)
            elif self.text in ("start", "end"):
                wanted[each] = begin if self.text == "start" else end
            elif OFFSET.fullmatch(self.text):
                wanted[each] = int(self.text)
            elif each in found.offsets:
                wanted[each] = min(max(found.offsets[each] + int(self.text), begin), end)
            else:
                raise InvalidJob(f"{self.text} needs known progress: {found.problem or f'{each} has none'}")
        return wanted

"""Reads the newest dead letters of a topic."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter

from wasmline.errors import OffsetOutOfRange, TopicNotFound
from wasmline.kafka import KafkaConfig, Topics, read_range
from wasmline.redrive.dead_letter_reader import StoredDeadLetter, stored_dead_letter


def newest_dead_letters(config: KafkaConfig, topic: str, count: int) -> list[StoredDeadLetter]:
    """Return at most ``count`` of the newest records of a dead-letter topic, the newest first.

    They are looked for in the last ``count`` offsets of each partition: there may be fewer records, where others were
    aborted. Raises TopicNotFound, BrokerUnavailable.
    """
    bounds = Topics(config).bounds([topic]).get(topic)
    if bounds is None:
        raise TopicNotFound(f"there is no topic {topic} on {config.bootstrap_servers}", topic=topic)
    ranges = {partition: (max(begin, end - count), end) for partition, (begin, end) in bounds.items()}
    found: list[StoredDeadLetter] = []
    with suppress(OffsetOutOfRange):  # retention has removed some meanwhile: another reading has what is left
        for message in read_range(config, topic, ranges):
            found.append(stored_dead_letter(message, message.offset() or 0))
    return sorted(found, key=attrgetter("timestamp", "offset"), reverse=True)[:count]

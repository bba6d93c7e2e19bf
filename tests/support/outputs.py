"""What a topic of outputs has to hold, by what was written: one output a record, named ``partition@offset``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeVar

from wasmline.kafka import KafkaConfig, read_to_end

T = TypeVar("T")


def outputs(config: KafkaConfig, topic: str) -> dict[bytes, list[str]]:
    """Return by key what a read_committed reader sees, in order."""
    found = defaultdict(list)
    for message in sorted(read_to_end(config, topic), key=lambda each: (each.partition(), each.offset())):
        found[message.key() or b""].append((message.value() or b"").decode())
    return dict(found)


def first_ones(found: Mapping[bytes, Sequence[T]]) -> dict[bytes, list[T]]:
    """Return outputs without those that were there before."""
    return {key: list(dict.fromkeys(texts)) for key, texts in found.items()}


def expected(written: Mapping[tuple[int, int], bytes]) -> dict[bytes, list[str]]:
    """Return what ``outputs`` is if each record's output is there once and those of a key are in order.

    ``written`` has the key of each record by its partition and offset.
    """
    found = defaultdict(list)
    for (partition, offset), key in sorted(written.items()):
        found[key].append(f"{partition}@{offset}")
    return dict(found)

"""The topic that every contestant reads."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from throughput.outputs import PARTITIONS, Expected

from delivery.generator import generate
from delivery.source_records import Source
from wasmline.kafka import KafkaConfig, Topics, produce_all


@dataclass(frozen=True, kw_only=True)
class Deliveries:
    """A topic of so many generated deliveries, and what they are to become."""

    topic: str
    records: int
    expected: Expected

    @classmethod
    def produce(cls, config: KafkaConfig, records: int) -> Deliveries:
        """Create the topic and fill it."""
        topic, expected = f"deliveries-{uuid.uuid4().hex[:8]}", Expected()
        Topics(config).create(topic, PARTITIONS)
        sources = _noted(generate(records), expected)
        # Their own times are a minute apart: a year of them is in the future, and a segment of a log has only a week.
        produce_all(config, topic, ((each.key, each.value, None, None) for each in sources))
        gc.freeze()  # a million objects, which no collection is to look at while something is measured
        return cls(topic=topic, records=records, expected=expected)


def _noted(sources: Iterator[Source], expected: Expected) -> Iterator[Source]:
    for source in sources:
        expected.add(source)
        yield source

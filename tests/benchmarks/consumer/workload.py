"""What the contestants are given: a topic, and work for each of its records."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from consumer.ledger import Ledger

from support.java_peer.java_peer import Coordinates, micros
from wasmline.kafka import KafkaConfig, Topics, produce_all, read_to_end

PARTITIONS = 3
NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a record takes, as Work.java reads it, and how many seconds that is by itself.

    Its topics have ``times`` as many records as others, where calls are short.
    """

    name: str
    text: str
    seconds: Callable[[int, int], float]
    times: int = 1


def none() -> Work:
    """Return no work at all: what is left is the consumer's own."""
    return Work(name=NOTHING, text="none", seconds=lambda partition, offset: 0.0, times=20)


def sleep(most_us: int) -> Work:
    """Return a sleep of 0 to ``most_us``, by a mix of the record's coordinates."""
    return Work(
        name=f"sleep 0–{most_us / 1_000:g} ms",
        text=f"sleep {most_us}",
        seconds=lambda partition, offset: micros(partition, offset, most_us) / 1e6,
    )


def fixed(us: int) -> Work:
    """Return the same sleep for every record."""
    name = f"sleep {us / 1_000:g} ms"
    return Work(name=name, text=f"fixed {us}", seconds=lambda partition, offset: us / 1e6, times=5)


def http(url: str, delay_us: int) -> Work:
    """Return a GET from a server that answers after ``delay_us``."""
    return Work(name="HTTP call", text=f"http {url}", seconds=lambda partition, offset: delay_us / 1e6)


@dataclass(frozen=True)
class Topic:
    """A topic of so many records, which take turns with so many keys."""

    config: KafkaConfig
    keys: int
    records: int

    @cached_property
    def name(self) -> str:
        """Its name; made and filled at the first use."""
        name = f"bench-{self.keys}-{uuid.uuid4().hex[:6]}"
        Topics(self.config).create(name, PARTITIONS)
        produce_all(
            self.config, name, ((b"k%d" % (n % self.keys), b"v%d" % n, None, None) for n in range(self.records))
        )
        return name

    @cached_property
    def ledger(self) -> Ledger:
        """What it holds, as a plain reader sees it."""
        return Ledger({_at(each): each.key() or b"" for each in read_to_end(self.config, self.name)})

    def total(self, work: Work) -> float:
        """Return the seconds of the work of all its records."""
        return sum(work.seconds(*at) for at in self.ledger.keys)

    def bound(self, work: Work, concurrency: int) -> float:
        """Return the least seconds that the work of all its records takes."""
        return self.ledger.bound({at: work.seconds(*at) for at in self.ledger.keys}, concurrency)


def _at(message: Any) -> Coordinates:
    return message.partition(), message.offset()

"""What the contestants are to write, what they wrote, and how the two differ."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from delivery.reference_transform import transform
from delivery.source_records import Source
from wasmline.kafka import KafkaConfig, Topics, read_to_end

PARTITIONS = 4
TOLERANCE_KM = 1e-9
"""Kilometres by which distances may differ: the math libraries' last digits are not the same."""

Item = TypeVar("Item")


class Feature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An output. Numbers are compared as numbers: contestants may write 29 or 29.0."""

    id: str
    driver: str
    age: float
    rating: float
    order_type: str
    vehicle: str
    time_min: float | None
    distance_km: float

    def same(self, other: Feature) -> bool:
        """Return whether all facts are equal, and the distances to TOLERANCE_KM."""
        return self._facts() == other._facts() and abs(self.distance_km - other.distance_km) <= TOLERANCE_KM

    def rank(self) -> Any:
        """Return what sorts features that have the same facts side by side."""
        return (*self._facts()[:-1], self.time_min is None, self.time_min or 0.0, self.distance_km)

    def _facts(self) -> tuple[Any, ...]:
        return self.id, self.driver, self.age, self.rating, self.order_type, self.vehicle, self.time_min


_decode = msgspec.json.Decoder(Feature).decode


@dataclass(frozen=True)
class Expected:
    """The outputs of the contract's own implementation: features and dead letters by key, in the order of the input."""

    features: dict[bytes, list[Feature]] = field(default_factory=lambda: defaultdict(list))
    dead_letters: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def add(self, source: Source) -> None:
        """Add what is to be written for a record."""
        feature, key = transform(source.value), source.key or b""
        if isinstance(feature, bytes):
            self.features[key].append(_decode(feature))
        else:
            self.dead_letters[key].append(source.value)

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of features and dead letters."""
        return _length(self.features), _length(self.dead_letters)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The two topics of one run."""

    features: str
    dead_letters: str

    @classmethod
    def create(cls, config: KafkaConfig) -> Outputs:
        """Create topics that nobody has written to."""
        outputs = cls(*(f"{noun}-{uuid.uuid4().hex[:8]}" for noun in ("features", "dead-letters")))
        for topic in (outputs.features, outputs.dead_letters):
            Topics(config).create(topic, PARTITIONS)
        return outputs

    def delete(self, config: KafkaConfig) -> None:
        """Delete both."""
        Topics(config).delete([self.features, self.dead_letters])

    def counts(self, config: KafkaConfig) -> tuple[int, int]:
        """Return how many records a read_committed reader gets of each."""
        features, dead_letters = (sum(1 for _ in read_to_end(config, topic)) for topic in self._topics())
        return features, dead_letters

    def faults(self, config: KafkaConfig, expected: Expected) -> Iterator[str]:
        """Read all committed records, and yield what is wrong with them."""
        try:
            features = _by_key(config, self.features, _decode)
        except msgspec.DecodeError as error:
            yield f"an output is no feature: {error}"
            return
        dead_letters = _by_key(config, self.dead_letters, bytes)
        yield from differences("outputs", expected.features, features, Feature.same, Feature.rank)
        yield from differences("dead letters", expected.dead_letters, dead_letters, bytes.__eq__, bytes)

    def _topics(self) -> tuple[str, str]:
        return self.features, self.dead_letters


def differences(
    what: str,
    expected: Mapping[bytes, Sequence[Item]],
    found: Mapping[bytes, Sequence[Item]],
    same: Callable[[Item, Item], bool],
    rank: Callable[[Item], Any],
) -> Iterator[str]:
    """Yield how many keys have other items than expected, and how many have them in another order."""

    def equal(key: bytes, order: Callable[[Sequence[Item]], Sequence[Item]]) -> bool:
        pair = expected.get(key, ()), found.get(key, ())
        return len(pair[0]) == len(pair[1]) and all(map(same, *map(order, pair)))

    unlike = [key for key in expected.keys() | found.keys() if not equal(key, lambda items: items)]
    other = [key for key in unlike if not equal(key, lambda items: sorted(items, key=rank))]
    if other:
        yield f"{len(other)} keys have other {what} than expected, such as {min(other)!r}"
    if len(unlike) > len(other):
        yield f"{len(unlike) - len(other)} keys have their {what} in another order"


def _by_key(config: KafkaConfig, topic: str, decode: Callable[[bytes], Item]) -> dict[bytes, list[Item]]:
    """Return a topic's values by key, in the order of their partition: a key has one."""
    found: dict[bytes, list[Item]] = defaultdict(list)
    for message in read_to_end(config, topic):
        found[message.key() or b""].append(decode(message.value() or b""))
    return found


def _length(items: Mapping[bytes, Sequence[Any]]) -> int:
    return sum(map(len, items.values()))

"""Verifies that a pipeline accounts for every record: one correct feature or one dead letter each, in order.

Pure: lists of records in, counts out. The expected outputs are computed independently from the raw lines by
``contract`` and ``great_circle``; nothing is taken from the transform under test.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from delivery.contract import FEATURES, Delivery, Violation, read
from delivery.great_circle import haversine_km
from wasmline.dead_letters import ERROR, REASON, REJECTED, SOURCE_OFFSET, SOURCE_PARTITION
from wasmline.documents import plain
from wasmline.errors import VerificationFailed

RELATIVE_TOLERANCE = 1e-9
"""Maximum relative deviation of a distance from the independent computation."""

MAX_OFFENDERS = 5
"""Maximum offenders of a kind in an error."""


class Raw(NamedTuple):
    """A record of the raw topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Feature(NamedTuple):
    """A record of the features topic, in the order of its partition."""

    key: bytes | None
    value: bytes | None


class DeadLetter(NamedTuple):
    """A record of the dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """The counts of a verified run.

    ``errors`` counts dead letters by class of failure, ``reasons`` the guest's own rejections by category.
    """

    records_in: int
    features: int
    dead_letters: int
    duplicates: int
    reasons: dict[str, int]
    errors: dict[str, int]
    keys: int
    largest_deviation: float


Coordinates = tuple[int, int]
_Facts = tuple[Any, ...]


@dataclass(slots=True)
class _Expected:
    """One input that meets the contract, waiting for its feature."""

    at: Coordinates
    distance_km: float


@dataclass(slots=True)
class _Ledger:
    """The findings so far; ``offences`` maps a kind of offence to sentences."""

    waiting: dict[tuple[bytes | None, _Facts], deque[_Expected]] = field(default_factory=lambda: defaultdict(deque))
    met: dict[tuple[bytes | None, _Facts], _Expected] = field(default_factory=dict)
    rejected: dict[Coordinates, Raw] = field(default_factory=dict)
    offences: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    duplicates: int = 0
    deviation: float = 0.0

    def offence(self, kind: str, sentence: str) -> None:
        self.offences[kind].append(sentence)


def verify(
    raw: Iterable[Raw],
    features: Iterable[Feature],
    dead_letters: Iterable[DeadLetter],
    *,
    duplicates_allowed: bool = False,
) -> Accounting:
    """Return the counts of a run in which every input became exactly one feature or one dead letter.

    Features must carry the input's key and facts, a distance within ``TOLERANCE`` of the independent one, and come in
    the input's order per key and partition. Dead letters must be the input's bytes, and exist only for violations of
    the contract and for failures of the guest. After a failure at-least-once delivery may repeat records;
    ``duplicates_allowed`` counts those instead of rejecting them. Raises VerificationFailed with the first offenders.
    """
    inputs = {(record.partition, record.offset): record for record in raw}
    letters = list(dead_letters)
    outputs = list(features)
    ledger = _Ledger()
    failed = _settle_dead_letters(ledger, inputs, letters)
    _expect(ledger, inputs, failed)
    _settle_features(ledger, outputs)
    _close(ledger)
    if ledger.duplicates and not duplicates_allowed:
        ledger.offence("duplicate", f"{ledger.duplicates} records came out more than once")
    accounting = Accounting(
        records_in=len(inputs),
        features=len(outputs),
        dead_letters=len(letters),
        duplicates=ledger.duplicates,
        reasons=_counted(_label(letter) for letter in letters),
        errors=_counted(_text(letter.headers.get(ERROR)) for letter in letters),
        keys=len({record.key for record in inputs.values()}),
        largest_deviation=ledger.deviation,
    )
    if ledger.offences:
        raise _failure(accounting, ledger.offences)
    return accounting


def _settle_dead_letters(
    ledger: _Ledger, inputs: Mapping[Coordinates, Raw], letters: Iterable[DeadLetter]
) -> set[Coordinates]:
    """Match dead letters with their inputs by coordinates; return those of inputs that meet the contract."""
    failed: set[Coordinates] = set()
    for letter in letters:
        at = _source(letter)
        record = inputs.get(at) if at else None
        if at is None or record is None:
            ledger.offence("unknown dead letter", f"{_shown(letter.value)} names no input")
        elif at in ledger.rejected:
            ledger.duplicates += 1
        else:
            ledger.rejected[at] = record
            if (letter.key, letter.value) != (record.key, record.value):
                ledger.offence("changed dead letter", f"{_place(at)} is not byte for byte its input")
            if not letter.headers.get(REASON):
                ledger.offence("dead letter without a reason", _place(at))
            if not isinstance(read(record.value), Violation):
                failed.add(at)
                if _text(letter.headers.get(ERROR)) in ("", REJECTED):
                    ledger.offence(
                        "wrongly rejected", f"{_place(at)} is valid, but was dead-lettered: {_shown(record.value)}"
                    )
    return failed


def _expect(ledger: _Ledger, inputs: Mapping[Coordinates, Raw], failed: set[Coordinates]) -> None:
    """Queue every input that must have a feature, by key and facts, in input order."""
    kept: list[tuple[Raw, Delivery]] = []
    for at, record in sorted(inputs.items()):
        match read(record.value):
            case Violation(reason):
                if at not in ledger.rejected:
                    ledger.offence("missing dead letter", f"{_place(at)} breaks the contract: {reason}")
            case delivery if at not in failed:
                kept.append((record, delivery))
    if not kept:
        return
    points = np.array([(*delivery.restaurant, *delivery.destination) for _, delivery in kept])
    for (record, delivery), distance in zip(kept, haversine_km(*points.T).tolist(), strict=True):
        expected = _Expected((record.partition, record.offset), distance)
        ledger.waiting[record.key, _facts(plain(delivery))].append(expected)


def _settle_features(ledger: _Ledger, features: Iterable[Feature]) -> None:
    """Remove each feature's input from its queue; check the distance and the order."""
    last: dict[tuple[bytes | None, int], int] = {}
    for feature in features:
        document = _document(feature.value)
        if document is None:
            ledger.offence("malformed feature", _shown(feature.value))
            continue
        name = (feature.key, _facts(document))
        if queue := ledger.waiting.get(name):
            expected = ledger.met[name] = queue.popleft()
            partition, offset = expected.at
            if last.get((feature.key, partition), -1) > offset:
                ledger.offence("out of order", f"{_place(expected.at)} of key {_shown(feature.key)}")
            last[feature.key, partition] = offset
        elif name in ledger.met:
            expected = ledger.met[name]
            ledger.duplicates += 1
        else:
            ledger.offence("unknown feature", f"key {_shown(feature.key)}: {_shown(feature.value)}")
            continue
        _check_distance(ledger, expected, document["distance_km"])


def _check_distance(ledger: _Ledger, expected: _Expected, found: Any) -> None:
    if not isinstance(found, int | float) or isinstance(found, bool):
        ledger.offence("wrong distance", f"{_place(expected.at)}: {found!r} is not a number")
        return
    deviation = abs(found - expected.distance_km) / max(abs(expected.distance_km), 1e-12)
    ledger.deviation = max(ledger.deviation, deviation)
    if not deviation <= RELATIVE_TOLERANCE:
        ledger.offence("wrong distance", f"{_place(expected.at)}: {found!r} km instead of {expected.distance_km!r} km")


def _close(ledger: _Ledger) -> None:
    """Every queue must be empty: remaining inputs have no output."""
    left = sorted(expected.at for queue in ledger.waiting.values() for expected in queue)
    for at in left:
        ledger.offence("missing", f"{_place(at)} is neither a feature nor a dead letter")


def _facts(document: Mapping[str, Any]) -> _Facts:
    """Return all fields of a delivery except its distance, which identify its feature."""
    return tuple(document[name] for name in FEATURES if name != "distance_km")


def _document(value: bytes | None) -> dict[str, Any] | None:
    try:
        document = json.loads(value or b"")
    except ValueError:
        return None
    whole = isinstance(document, dict) and document.keys() == set(FEATURES)
    return document if whole and not any(isinstance(cell, list | dict) for cell in document.values()) else None


def _source(letter: DeadLetter) -> Coordinates | None:
    partition, offset = letter.headers.get(SOURCE_PARTITION), letter.headers.get(SOURCE_OFFSET)
    try:
        return int(partition or b""), int(offset or b"")
    except ValueError:
        return None


def _label(letter: DeadLetter) -> str:
    """Return the label of a dead letter: the category of the guest's reason, or the class of the host's failure."""
    error = _text(letter.headers.get(ERROR))
    return _text(letter.headers.get(REASON)).partition(":")[0] if error == REJECTED else error


def _counted(labels: Iterable[str]) -> dict[str, int]:
    return dict(Counter(label or "(none)" for label in labels).most_common())


def _failure(accounting: Accounting, offences: Mapping[str, list[str]]) -> VerificationFailed:
    lines = [f"{len(found)} {kind}, first {'; '.join(found[:MAX_OFFENDERS])}" for kind, found in offences.items()]
    report = {
        **plain(accounting),
        "offences": {kind: {"count": len(found), "first": found[:MAX_OFFENDERS]} for kind, found in offences.items()},
    }
    return VerificationFailed(
        f"{accounting.records_in} records in do not add up with {accounting.features} features and "
        f"{accounting.dead_letters} dead letters: {'. '.join(lines)}",
        report=report,
    )


def _place(at: Coordinates) -> str:
    return f"partition {at[0]} offset {at[1]}"


def _shown(data: bytes | None) -> str:
    return "null" if data is None else repr(data[:120].decode("utf-8", "replace"))


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")

"""Reads a record's origin from its headers: the provenance of an output, or the headers of a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wasmline import dead_letters, provenance
from wasmline.lineage.explanation import RecordPosition
from wasmline.printable import bounded_line
from wasmline.provenance import ShortModelReference
from wasmline.topic_partitions import TopicPartition

Header = tuple[str, bytes | None]

ORIGINS = (provenance.NAME, dead_letters.REDRIVEN, dead_letters.SOURCE_OFFSET)
"""Headers that name a record's source: the last one counts."""


class HeaderOrigin(NamedTuple):
    """The origin that headers name. ``problem`` says why headers that are there name none."""

    source: RecordPosition | None = None
    transform: tuple[str, str] | None = None
    digest: str = ""
    model: ShortModelReference | None = None
    error: str | None = None
    reason: str | None = None
    problem: str | None = None


def origin_of(headers: Sequence[Header]) -> HeaderOrigin:
    """Return the origin that a record's headers name.

    The host writes its own headers last: a dead letter carries the provenance of the record that failed before them,
    and the output of a dead letter carries the dead letter's. A redriven record names its dead letter.
    """
    values = dict(headers)
    last = {name: place for place, (name, _) in enumerate(headers) if name in ORIGINS}
    match max(last, key=last.__getitem__, default=None):
        case provenance.NAME:
            return _of_output(values[provenance.NAME])
        case dead_letters.REDRIVEN:
            return _of_redriven(values[dead_letters.REDRIVEN])
        case dead_letters.SOURCE_OFFSET:
            return _of_dead_letter(headers)
    return HeaderOrigin()


def _of_output(value: bytes | None) -> HeaderOrigin:
    found = provenance.parse(value)
    if found is None:
        return HeaderOrigin(problem=f"its header {provenance.NAME} is not provenance: {_shown(value)}")
    return HeaderOrigin(
        source=_position(found.source, found.offset),
        transform=(found.name, found.version),
        digest=found.digest,
        model=found.model,
    )


def _of_dead_letter(headers: Sequence[Header]) -> HeaderOrigin:
    failure = dead_letters.parse_failure(headers)
    origin = HeaderOrigin(
        transform=(failure.transform, failure.version) if failure.version else None,
        digest=failure.digest,
        error=failure.error,
        reason=failure.reason,
    )
    if failure.source is None:
        return origin._replace(problem="its headers wasmline.source.* do not name a record")
    return origin._replace(source=_position(failure.source, failure.offset))


def _of_redriven(value: bytes | None) -> HeaderOrigin:
    found = dead_letters.parse_redriven(value)
    if found is None:
        return HeaderOrigin(problem=f"its header {dead_letters.REDRIVEN} is no dead letter: {_shown(value)}")
    return HeaderOrigin(source=_position(*found))


def _position(source: TopicPartition, offset: int) -> RecordPosition:
    return RecordPosition(topic=source.topic, partition=source.partition, offset=offset)


def _shown(value: bytes | None) -> str:
    return repr(bounded_line((value or b"").decode(errors="replace")))

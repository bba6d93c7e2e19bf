"""Reads a record's origin from its headers: the provenance of an output, or the headers of a dead letter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from wasmline import dead_letters, provenance
from wasmline.lineage.explanation import RecordPosition
from wasmline.printable import bounded_line
from wasmline.provenance import MAX_OFFSET, MAX_PARTITION, ShortModelReference

Header = tuple[str, bytes | None]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


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
    and the output of a dead letter carries the dead letter's.
    """
    last = {name: place for place, (name, _) in enumerate(headers)}
    is_output = last.get(provenance.NAME, -1) > last.get(dead_letters.SOURCE_OFFSET, -1)
    values = dict(headers)
    if is_output:
        return _of_output(values[provenance.NAME])
    return _of_dead_letter(values) if dead_letters.SOURCE_OFFSET in values else HeaderOrigin()


def _of_output(value: bytes | None) -> HeaderOrigin:
    found = provenance.parse(value)
    if found is None:
        shown = bounded_line((value or b"").decode(errors="replace"))
        return HeaderOrigin(problem=f"its header {provenance.NAME} is not provenance: {shown!r}")
    return HeaderOrigin(
        source=RecordPosition(topic=found.source.topic, partition=found.source.partition, offset=found.offset),
        transform=(found.name, found.version),
        digest=found.digest,
        model=found.model,
    )


def _of_dead_letter(headers: dict[str, bytes | None]) -> HeaderOrigin:
    texts = {name: (value or b"").decode(errors="replace") for name, value in headers.items()}
    names = (dead_letters.SOURCE_TOPIC, dead_letters.SOURCE_PARTITION, dead_letters.SOURCE_OFFSET)
    topic, partition, offset = (texts.get(name, "") for name in names)
    name, _, version = texts.get(dead_letters.TRANSFORM, "").partition("@")
    origin = HeaderOrigin(
        transform=(name, version) if version else None,
        digest=texts.get(dead_letters.MODULE, ""),
        error=texts.get(dead_letters.ERROR),
        reason=texts.get(dead_letters.REASON),
    )
    is_position = _TOPIC.fullmatch(topic) and all(_NUMBER.fullmatch(each) for each in (partition, offset))
    if not is_position or int(partition) > MAX_PARTITION or int(offset) > MAX_OFFSET:
        return origin._replace(problem="its headers wasmline.source.* do not name a record")
    return origin._replace(source=RecordPosition(topic=topic, partition=int(partition), offset=int(offset)))

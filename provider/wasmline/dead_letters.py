"""Dead letters: the unchanged record, with headers for the reason and the origin.

A guest that rejects a record writes it to its dead-letter topic with only ``wasmline.reason`` of these headers, so that
the module does the same inside a Redpanda broker. The host adds the others, for its own dead letters (traps, time-outs)
and for rejections.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from wasmline.offset_ranges import MAX_OFFSET, MAX_PARTITION
from wasmline.printable import one_line
from wasmline.topic_partitions import TOPIC_NAME, TopicPartition

REASON = "wasmline.reason"
"""One printable line, written by the guest or by the host."""

ERROR = "wasmline.error"
"""The class of the failure: a TransformError of the error tree, or ``Rejected`` for a rejection by the guest."""

MODULE = "wasmline.module"
"""The module's digest, ``sha256:…``."""

TRANSFORM = "wasmline.transform"
"""``name@version`` of the transform."""

TRUNCATED = "wasmline.truncated"
"""The size of the record, if the dead letter exceeded its topic's limit: value and headers are omitted."""

SOURCE_TOPIC = "wasmline.source.topic"
SOURCE_PARTITION = "wasmline.source.partition"
SOURCE_OFFSET = "wasmline.source.offset"

REDRIVEN = "wasmline.redriven"
"""The dead letter that a record was written from again, as ``topic-partition@offset``."""

OURS = frozenset((REASON, ERROR, MODULE, TRANSFORM, SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET))
"""Headers that describe a failure; a dead letter's other headers are the record's."""

REJECTED = "Rejected"

MAX_REASON_BYTES = 1_024
"""Maximum bytes of a reason; a longer one is truncated, and ends in ``…``."""

MAX_REASONS = 50
MAX_LABEL = 80
OTHER = "other"

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_COORDINATES = re.compile(
    rf"(?P<topic>{TOPIC_NAME.pattern})-(?P<partition>{_NUMBER.pattern})@(?P<offset>{_NUMBER.pattern})"
)

Header = tuple[str, bytes | None]


class DeadLetter(NamedTuple):
    """The contents of a dead letter. Its headers are the record's, or those of a rejection, and then ``added``."""

    key: bytes | None
    value: bytes | None
    carried: Sequence[Header]
    added: Sequence[Header]

    @property
    def headers(self) -> list[Header]:
        """All headers, in the order in which they are written."""
        return [*self.carried, *self.added]

    def truncated(self, size: int | None = None) -> DeadLetter:
        """Return it for a topic that does not accept it whole: without the record's value and headers.

        ``size`` is that of the record, in bytes; by default that of its key and value. A key is omitted if it is longer
        than a reason may be.
        """
        if size is None:
            size = len(self.key or b"") + len(self.value or b"")
        key = self.key if len(self.key or b"") <= MAX_REASON_BYTES else None
        kept = [header for header in self.carried if header[0] in OURS]
        return DeadLetter(key, None, kept, [*self.added, (TRUNCATED, str(size).encode())])


class Failure(NamedTuple):
    """What the headers of a dead letter tell of its failure; "" and None where they do not.

    ``offset`` is that of the record in ``source``, -1 without one; ``truncated_bytes`` the record's size, if its value
    is missing.
    """

    source: TopicPartition | None
    offset: int
    transform: str
    version: str
    digest: str
    error: str | None
    reason: str | None
    truncated_bytes: int | None

    @property
    def transform_reference(self) -> str:
        """``name@version`` of the transform, as far as it is known."""
        return f"{self.transform}@{self.version}" if self.version else self.transform

    @property
    def position(self) -> str:
        """The record in the form of messages, ``orders-0@42``; "" if it is not known."""
        return "" if self.source is None else f"{self.source}@{self.offset}"


def parse_failure(headers: Sequence[Header]) -> Failure:
    """Return what headers tell of a failure: of repeated ones the last counts, which the host wrote."""
    texts = {name: (value or b"").decode(errors="replace") for name, value in headers}
    topic, partition, offset = (texts.get(name, "") for name in (SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET))
    size = texts[TRUNCATED] if _is_truncated(headers) else ""
    name, _, version = texts.get(TRANSFORM, "").partition("@")
    is_position = (
        TOPIC_NAME.fullmatch(topic)
        and all(_NUMBER.fullmatch(each) for each in (partition, offset))
        and (int(partition) <= MAX_PARTITION and int(offset) <= MAX_OFFSET)
    )
    return Failure(
        source=TopicPartition(topic, int(partition)) if is_position else None,
        offset=int(offset) if is_position else -1,
        transform=name,
        version=version,
        digest=texts.get(MODULE, ""),
        error=texts.get(ERROR),
        reason=texts.get(REASON),
        truncated_bytes=int(size) if _NUMBER.fullmatch(size) else None,
    )


def parse_redriven(value: bytes | None) -> tuple[TopicPartition, int] | None:
    """Return the dead letter that a header REDRIVEN names, and its offset; None if it names none."""
    found = _COORDINATES.fullmatch((value or b"").decode(errors="replace"))
    if found is None or int(found["partition"]) > MAX_PARTITION or int(found["offset"]) > MAX_OFFSET:
        return None
    return TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])


def record_headers(headers: Sequence[Header]) -> list[Header]:
    """Return the headers of the record that became a dead letter: all but those of its last failure."""
    last = {name: place for place, (name, _) in enumerate(headers) if name in OURS}
    failure = {*last.values(), *([len(headers) - 1] if _is_truncated(headers) else ())}
    return [header for place, header in enumerate(headers) if place not in failure]


def _is_truncated(headers: Sequence[Header]) -> bool:
    """Return whether the host has added the header of a truncated dead letter, which it writes last."""
    return bool(headers) and headers[-1][0] == TRUNCATED


def failed(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    error: BaseException,
    provenance: Sequence[Header],
) -> DeadLetter:
    """Return the dead letter of a record that failed with ``error``."""
    return DeadLetter(key, value, headers, [*failure(error=type(error).__name__, reason=reason_of(error)), *provenance])


def rejected(
    key: bytes | None, value: bytes | None, headers: Iterable[Header], provenance: Sequence[Header]
) -> DeadLetter:
    """Return the dead letter of a record that the guest rejected, from what the guest wrote."""
    return DeadLetter(key, value, rejection(headers), provenance)


def provenance(origin: Sequence[Header], source: TopicPartition, offset: int) -> list[Header]:
    """Return the headers that name what processed a record, its ``origin``, and the record."""
    return [*origin, *coordinates(source, offset)]


def origin(*, transform: str, digest: str) -> list[Header]:
    """Return the headers that name the module that processed a record."""
    return [(TRANSFORM, transform.encode()), (MODULE, digest.encode())]


def coordinates(source: TopicPartition, offset: int) -> list[Header]:
    """Return the headers that name the input record."""
    return [
        (SOURCE_TOPIC, source.topic.encode()),
        (SOURCE_PARTITION, str(source.partition).encode()),
        (SOURCE_OFFSET, str(offset).encode()),
    ]


def failure(*, error: str, reason: str) -> list[Header]:
    """Return the headers with the reason why the host dead-lettered a record, for any texts."""
    return [(ERROR, _cut(error)), (REASON, _cut(reason))]


def reason_of(error: BaseException) -> str:
    """Return the text of an error in a form that can be logged and written, whatever it contains."""
    try:
        text = str(error)
    except Exception as fault:
        text = f"its text cannot be made: {type(fault).__name__}"
    return _cut(text).decode()


def rejection(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a rejection, with its reason as one printable line, and its class."""
    return [*((name, _line(value) if name == REASON else value) for name, value in headers), (ERROR, REJECTED.encode())]


def _line(reason: bytes | None) -> bytes | None:
    return None if reason is None else _cut(reason.decode(errors="replace"))


def label(error: str, reason: str, known: Collection[str] = ()) -> str:
    """Return the label under which a dead letter is counted: its error and, for a rejection, the reason's category.

    That is the part before the first colon. A label that would exceed the limit beside the ``known`` ones is ``other``.
    """
    text = f"{error}: {one_line(reason.partition(':')[0][:MAX_LABEL])}" if error == REJECTED else error[:MAX_LABEL]
    return text if text in known or len(known) < MAX_REASONS else OTHER


def _cut(text: str) -> bytes:
    """Return a text as one printable line in UTF-8, of at most MAX_REASON_BYTES; a longer one ends in ``…``."""
    start = text[: 4 * MAX_REASON_BYTES]
    line = one_line(start).encode()
    if len(start) == len(text) and len(line) <= MAX_REASON_BYTES:
        return line
    end = "…".encode()
    return line[: MAX_REASON_BYTES - len(end)].decode(errors="ignore").encode() + end

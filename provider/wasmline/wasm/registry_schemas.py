"""The fixed set of schemas in a guest's schema registry. A live registry would break the guest's isolation."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from wasmline.errors import InvalidSpec, LimitExceeded

Format = Literal["avro", "protobuf", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""Schema formats, in the order of their numbers in the ABI."""

MAX_SCHEMAS = 1000
MAX_BYTES = 2**24
"""Maximum size of all definitions together: every instance holds a copy."""

ROW = struct.Struct("<8I")
"""A schema in the shim's memory: id, version, subject and its size, answer to a lookup by subject and its size, answer
to a lookup by id and its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One schema. A guest looks it up by id, or, if it has a subject, by subject and version.

    ``definition`` is the text for the guest, not parsed here. It has no references to other schemas.
    Raises LimitExceeded for a number or a length out of range.
    """

    id: int
    definition: str
    format: Format
    subject: str | None = None
    version: int = 1

    def __post_init__(self) -> None:
        for what, number, least in (("id", self.id, 0), ("version", self.version, 1)):
            if not least <= number < 2**31:
                raise LimitExceeded(f"a schema's {what} must be from {least} to {2**31 - 1}, got {number}")
        if self.format not in FORMATS:
            raise InvalidSpec(f"schema {self.id}: unknown format {self.format!r}; choose {', '.join(FORMATS)}")
        if self.subject == "":
            raise InvalidSpec(f"schema {self.id}: its subject is empty; leave it out, or name it")

    def content(self) -> bytes:
        """Return the answer to a lookup by id: format, text and the number of references."""
        text = self.definition.encode()
        return varint(FORMATS.index(self.format)) + varint(len(text)) + text + varint(0)


def check_schemas(schemas: tuple[Schema, ...]) -> None:
    """Raise LimitExceeded for too many schemas, InvalidSpec for two that conflict in id or version."""
    if len(schemas) > MAX_SCHEMAS:
        raise LimitExceeded(f"{len(schemas)} schemas; at most {MAX_SCHEMAS}")
    if (size := sum(len(schema.content()) for schema in schemas)) > MAX_BYTES:
        raise LimitExceeded(f"{len(schemas)} schemas take {size} bytes; at most {MAX_BYTES} are allowed together")
    by_id: dict[int, bytes] = {}
    by_subject = set()
    for schema in schemas:
        if by_id.setdefault(schema.id, schema.content()) != schema.content():
            raise InvalidSpec(f"schema id {schema.id} is given to two definitions: an id identifies one")
        named = (schema.subject, schema.version)
        if schema.subject is not None and named in by_subject:
            raise InvalidSpec(f"version {schema.version} of subject {schema.subject} is given twice: renumber one")
        by_subject.add(named)


def lay_out(schemas: Iterable[Schema], position: int) -> bytes:
    """Return the rows of all schemas, then the data they point to, for a position in memory.

    Schemas with a subject come first, the latest version of each before the earlier ones.
    """
    ordered = sorted(schemas, key=lambda schema: (schema.subject is None, -schema.version))
    rows, texts = b"", bytearray()
    first = position + ROW.size * len(ordered)
    for schema in ordered:
        subject = (schema.subject or "").encode()
        head = varint(schema.id) + varint(schema.version)
        content = schema.content()
        start = first + len(texts)
        answer = start + len(subject)
        rows += ROW.pack(
            schema.id,
            schema.version,
            *(start, len(subject)),
            *(answer, len(head) + len(content)),
            *(answer + len(head), len(content)),
        )
        texts += subject + head + content
    return rows + texts


def varint(number: int) -> bytes:
    """Return a number of at least 0 as the ABI writes all its numbers: zigzag, seven bits a byte, lowest first."""
    code, encoded = number << 1, bytearray()
    while code > 127:
        encoded.append(code & 127 | 128)
        code >>= 7
    encoded.append(code)
    return bytes(encoded)

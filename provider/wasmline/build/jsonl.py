"""Records as JSON Lines, for shell pipes and readable samples.

in    {"key": …, "value": …, "headers": [[k, v], …], "timestamp": 1700000000000, "partition": 0, "offset": 7}
out   {"output": 0, "topic": …, "key": …, "value": …, "headers": […], "source": {"partition": 0, "offset": 7}}
bad   {"error": "GuestTrap", "reason": "…", "source": {"partition": 0, "offset": 7}}

Strings are UTF-8, other bytes are {"base64": "…"}, null is null. An input line requires only ``value``; the default
offset is the record's number in the input, from 0. ``output`` is an index of the output topics.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Annotated, Any, BinaryIO

import msgspec
import pyarrow as pa
from msgspec import Meta, Struct

from wasmline.errors import InvalidJsonLine
from wasmline.printable import printable
from wasmline.record_batches import record_batch
from wasmline.wasm import TransformResult

MAX_BATCH = 10_000
_CHUNK = 1 << 20
_HALF = rb"\\u[dD][%s][\da-fA-F]{2}"
_ESCAPE = re.compile(_HALF % b"89abAB" + _HALF % b"c-fC-F" + b"|(" + _HALF % b"89a-fA-F" + rb")|\\.", re.DOTALL)
"""One escape of a JSON string, or a surrogate pair; the group is an unpaired surrogate."""


class _Base64(Struct, forbid_unknown_fields=True):
    base64: bytes


_Bytes = str | _Base64 | None
_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Line(Struct, forbid_unknown_fields=True):
    value: _Bytes
    key: _Bytes = None
    headers: list[tuple[str, _Bytes]] = []
    timestamp: _Int64 = 0
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


_decoder = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()


def read_batches(stream: BinaryIO, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of a stream as they arrive, in batches of RECORD_SCHEMA.

    A batch has the lines of one read of the stream, at most MAX_BATCH records: there is no wait for a full batch.
    Raises InvalidJsonLine, after the records of the lines before it.
    """
    number = 0
    offset = 0
    for lines in _available_lines(stream):
        for start in range(0, len(lines), MAX_BATCH):
            records: list[_Line] = []
            problem: InvalidJsonLine | None = None
            for text in lines[start : start + MAX_BATCH]:
                number += 1
                if not text.strip():
                    continue
                try:
                    record = _decoder.decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    told = f"{source}:{number}: not a record: {complaint(text, error)}"
                    problem = InvalidJsonLine(told, source=source, line=number)
                    break
                record.offset = offset if record.offset is None else record.offset
                offset += 1
                records.append(record)
            if records:
                yield _batch(records)
            if problem:
                raise problem


def complaint(line: bytes, error: msgspec.DecodeError | UnicodeDecodeError) -> str:
    """Return why a line could not be decoded; for invalid Unicode the decoder's own message misleads."""
    remedy = 'write bytes that are not text as {"base64": "..."}'
    if isinstance(error, UnicodeDecodeError):
        return f"the text is not valid Unicode: byte 0x{error.object[error.start]:02x} is not UTF-8; {remedy}"
    lone = next((match[1] for match in _ESCAPE.finditer(line) if match[1]), None)
    if lone is not None:
        return f"the text is not valid Unicode: {lone.decode()} is half of a surrogate pair; {remedy}"
    return str(error)


def output_lines(batch: pa.RecordBatch, result: TransformResult, topics: Sequence[str]) -> Iterator[bytes]:
    """Yield the outputs of a transform for a batch, in input order, each as one line of JSON with its newline."""
    sources = [
        {"partition": partition, "offset": offset}
        for partition, offset in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]
    outputs = ((row, _output(columns, sources[row], topics)) for row, *columns in _rows(result.outputs))
    failures = (
        (
            failure.row,
            {"error": type(failure.error).__name__, "reason": str(failure.error), "source": sources[failure.row]},
        )
        for failure in result.failures
    )
    for _, line in merge(outputs, failures, key=lambda item: item[0]):
        yield encoded(line) + b"\n"


def encoded(document: Any) -> bytes:
    """Return a document as one line of JSON, with an escape for every character that may control a terminal."""
    line = _encoder.encode(document)
    return line if line.isascii() else printable(line.decode()).encode()


def _available_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the complete lines of each read; the last line may lack its newline."""
    parts: list[bytes] = []
    read = getattr(stream, "read1", stream.read)
    while chunk := read(_CHUNK):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*parts, head]).split(b"\n")
            parts = []
        parts.append(tail)
    if rest := b"".join(parts):
        yield [rest]


def _batch(records: list[_Line]) -> pa.RecordBatch:
    return record_batch(
        keys=[_raw(record.key) for record in records],
        values=[_raw(record.value) for record in records],
        headers=[[(key, _raw(value)) for key, value in record.headers] for record in records],
        timestamps=[record.timestamp for record in records],
        partitions=[record.partition for record in records],
        offsets=[record.offset or 0 for record in records],
    )


def _rows(outputs: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in outputs.columns), strict=True)


def _output(columns: Sequence[Any], source: dict[str, int], topics: Sequence[str]) -> dict[str, Any]:
    output, key, value, headers = columns
    return {
        "output": output,
        "topic": topics[output],
        "key": plain_bytes(key),
        "value": plain_bytes(value),
        "headers": [[header["key"], plain_bytes(header["value"])] for header in headers or ()],
        "source": source,
    }


def _raw(value: _Bytes) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return None if value is None else value.base64


def plain_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as a line has them: as text if they are UTF-8, else as Base64 in an object."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}

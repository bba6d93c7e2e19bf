"""Lays out the static part of the shim's memory: args, topics, schemas, and space for logs."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from wasmline.wasm.columns.control_block import LOG_HEADER, NO_ROW, STATIC, STDERR_HEAD_BYTES, STDERR_TAIL_BYTES, align
from wasmline.wasm.columns.shim_memory import ShimMemory, sandbox_violation_error
from wasmline.wasm.registry_schemas import lay_out
from wasmline.wasm.resource_limits import ResourceLimits
from wasmline.wasm.result import LogLine
from wasmline.wasm.transform_context import TransformContext

_STDOUT = 1
_TORN = "\n[...]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRegions:
    """Positions in the shim's memory: stderr, log, which takes ``log_capacity`` bytes, and the end of both."""

    stderr: int
    log: int
    log_capacity: int
    end: int


def write_environment(memory: ShimMemory, context: TransformContext, limits: ResourceLimits) -> StaticRegions:
    """Lay out everything that outlives a batch; batches may begin at its end."""
    strings = _strings([context.name], [f"{key}={value}" for key, value in context.environment().items()])
    topics_at = align(STATIC + len(strings))
    topics = _topics(topics_at, context.output_topics)
    schemas_at = align(topics_at + len(topics))
    schemas = lay_out(context.schemas, schemas_at)
    stderr = align(schemas_at + len(schemas))
    log = stderr + STDERR_HEAD_BYTES + STDERR_TAIL_BYTES
    end = align(log + limits.log_bytes_per_batch)
    memory.reserve(end)
    memory.write(STATIC, strings)
    memory.write(topics_at, topics)
    memory.write(schemas_at, schemas)
    memory.put(
        strings=STATIC,
        topics=topics_at,
        topic_count=len(context.output_topics),
        stderr=stderr,
        log=log,
        log_capacity=limits.log_bytes_per_batch,
        output_limit=limits.output_bytes_per_record,
        redpanda_clock=context.clock == "redpanda",
        schemas=schemas_at,
        schema_count=len(context.schemas),
        subject_count=sum(schema.subject is not None for schema in context.schemas),
        row=NO_ROW,
    )
    return StaticRegions(stderr=stderr, log=log, log_capacity=limits.log_bytes_per_batch, end=end)


def _strings(*lists: list[str]) -> bytes:
    """Return count and size of each list, then the texts, each terminated by a zero byte as WASI requires."""
    texts = [b"".join(text.encode() + b"\0" for text in texts) for texts in lists]
    head = b"".join(struct.pack("<II", len(items), len(text)) for items, text in zip(lists, texts, strict=True))
    return head + b"".join(texts)


def _topics(position: int, names: tuple[str, ...]) -> bytes:
    """Return an array of (position, length), then the names."""
    table, texts = b"", b""
    first = position + 8 * len(names)
    for name in names:
        text = name.encode()
        table += struct.pack("<II", first + len(texts), len(text))
        texts += text
    return table + texts


def read_logs(memory: ShimMemory, static: StaticRegions, end_row: int) -> list[LogLine]:
    """Return the log lines that the shim kept, in order, of rows before ``end_row``.

    Bytes that are not UTF-8 are replaced.
    """
    data = memory.read(static.log, memory.count("log_bytes", static.log_capacity))
    lines, position = [], 0
    while position < len(data):
        start = position + LOG_HEADER.size
        if start > len(data):
            raise sandbox_violation_error("a log line is truncated")
        row, descriptor, size = LOG_HEADER.unpack_from(data, position)
        position = start + size
        if position > len(data) or (row >= end_row and row != NO_ROW):
            raise sandbox_violation_error(f"a log line of {size} bytes is for row {row}")
        text = data[start:position].decode(errors="replace")
        lines.append(
            LogLine(row=None if row == NO_ROW else row, level="INFO" if descriptor == _STDOUT else "WARN", text=text)
        )
    return lines


def read_stderr(memory: ShimMemory, static: StaticRegions) -> str:
    """Return the last record's stderr: all of it, or its head and its tail."""
    data = memory.read(static.stderr, memory.count("stderr_bytes", STDERR_HEAD_BYTES + STDERR_TAIL_BYTES))
    if not memory.get("stderr_torn"):
        return data.decode(errors="replace").strip()
    head, tail = data[:STDERR_HEAD_BYTES], data[STDERR_HEAD_BYTES:]
    return (head.decode(errors="replace") + _TORN + tail.decode(errors="replace")).strip()

"""Reads the headers of record batches, version 2 (kafka.apache.org/documentation/#recordbatch)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
PREFIX_BYTES = 12
"""Bytes before the part that a batch's length covers: its offset, and that length."""

CONTROL_ATTRIBUTE = 1 << 5
"""The attribute of a control batch, which holds a marker."""


class Batch(NamedTuple):
    """The header of a batch, and its position in the bytes that it was read from."""

    offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    is_control: bool
    begin: int
    end: int


def batches(data: bytes) -> Iterator[Batch]:
    """Yield the batches of a segment or a fetch; an incomplete one at the end is omitted."""
    begin = 0
    while begin + HEADER.size <= len(data):
        offset, length, epoch, _, _, attributes, last, _, _, producer_id, _, _, _ = HEADER.unpack_from(data, begin)
        end = begin + PREFIX_BYTES + length
        if length < HEADER.size - PREFIX_BYTES or end > len(data):
            return
        yield Batch(offset, offset + last, epoch, producer_id, bool(attributes & CONTROL_ATTRIBUTE), begin, end)
        begin = end

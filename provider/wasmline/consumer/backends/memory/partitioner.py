"""Selects the partition of a key as Java's clients do: 32-bit Murmur2, by Austin Appleby, with Kafka's seed."""

from __future__ import annotations

import struct

SEED = 0x9747B28C
FACTOR = 0x5BD1E995
MASK = 0xFFFFFFFF


def partition_of(key: bytes | None, partitions: int, turn: int) -> int:
    """Return the partition of a key; records without a key are distributed in turn."""
    return turn % partitions if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned number of 32 bits."""
    value = SEED ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = value * FACTOR & MASK ^ _mixed(word)
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * FACTOR & MASK
    value = (value ^ value >> 13) * FACTOR & MASK
    return value ^ value >> 15


def _mixed(word: int) -> int:
    word = word * FACTOR & MASK
    return (word ^ word >> 24) * FACTOR & MASK

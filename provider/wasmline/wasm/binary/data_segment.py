"""Adds data to a module: one more data segment, behind the memory that the module begins with.

The module has to leave a place for the data's address: a mark of 16 bytes, followed by two 32-bit numbers.
"""

from __future__ import annotations

import struct

from wasmline.errors import InvalidModule
from wasmline.wasm.binary.reader import DATA, DATA_COUNT, MEMORY, PREAMBLE_BYTES, Reader, each_section, number, vector

PAGE_BYTES = 64 * 1024
MAX_PAGES = 65_536
MARK_BYTES = 16

_I32_CONST, _END = 0x41, 0x0B
_HAS_MAXIMUM = 0x01


def add_data(wasm: bytes, data: bytes, mark: bytes) -> bytes:
    """Return the module with ``data`` in its memory, and its address and size in the 8 bytes behind ``mark``.

    The memory grows by whole pages, and the data begins on the first of them. Raises InvalidModule if the mark is not
    there exactly once, or the memory may not grow so far.
    """
    if len(mark) != MARK_BYTES:
        raise ValueError(f"a mark has {MARK_BYTES} bytes, got {len(mark)}")
    found = list(each_section(wasm))
    contents = dict(found)
    if MEMORY not in contents or DATA not in contents:
        raise InvalidModule("the module has no memory or no data, so that no data can be added to it")
    memory, address = _grown(contents[MEMORY], len(data))
    changed = {MEMORY: memory, DATA: _with_segment(contents[DATA], address, data, mark)}
    if DATA_COUNT in contents:
        changed[DATA_COUNT] = number(Reader(contents[DATA_COUNT]).number() + 1)
    body = b"".join(bytes([kind]) + vector(changed.get(kind, content)) for kind, content in found)
    return wasm[:PREAMBLE_BYTES] + body


def _grown(section: bytes, size: int) -> tuple[bytes, int]:
    """Return a memory section with room for so many more bytes, and their address."""
    reader = Reader(section)
    count, flags, least = reader.number(), reader.byte(), reader.number()
    if count != 1 or flags > _HAS_MAXIMUM:
        raise InvalidModule("data is added only to a module with one memory of 32-bit addresses that is not shared")
    pages = least + -(-size // PAGE_BYTES)
    most = reader.number() if flags & _HAS_MAXIMUM else MAX_PAGES
    if pages > most:
        raise InvalidModule(f"the module's memory may have {most} pages, and {pages} are needed")
    maximum = number(most) if flags & _HAS_MAXIMUM else b""
    return number(1) + bytes([flags]) + number(pages) + maximum, least * PAGE_BYTES


def _with_segment(section: bytes, address: int, data: bytes, mark: bytes) -> bytes:
    if section.count(mark) != 1:
        raise InvalidModule(f"the module has {section.count(mark)} places for the address of data, not one")
    at = section.index(mark) + MARK_BYTES
    section = section[:at] + struct.pack("<II", address, len(data)) + section[at + 8 :]
    reader = Reader(section)
    count = reader.number()
    offset = bytes([_I32_CONST]) + _signed(address) + bytes([_END])
    return number(count + 1) + reader.remaining() + number(0) + offset + vector(data)


def _signed(value: int) -> bytes:
    """Return a number of 32 bits as signed LEB128."""
    value -= (value & 1 << 31) << 1
    written = bytearray()
    while not -64 <= value < 64:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value & 0x7F])

"""Redirects the calls in the code of a function. Source: the core specification, "Instructions".

Only for code that the runtime has validated, without the proposals that ``engine.SETTINGS`` turns off. The rewritten
code must be validated again; ``link_shim`` does that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from wasmline.errors import InvalidModule
from wasmline.wasm.binary.module_types import value_type
from wasmline.wasm.binary.reader import Reader, number

_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
_PLACE = rb"(?:(?:[\x00-\x3f]|[\x80-\xbf]%b)|(?:[\x40-\x7f]|[\xc0-\xff]%b)%b)%b" % ((_NUMBER,) * 4)
"""An alignment, which determines whether a memory index follows, and an offset."""

_BLOCK_TYPE = rb"(?:\x63[\x6f\x70]|[\x40\x6f\x70\x7b-\x7f]|[\x80-\xff]*[\x00-\x3f])"
"""A reference type in its long form, none or a value type, or a type index: signed, at least 0."""

_OTHERS = (
    rb"[\x00\x01\x05\x0b\x0f\x1a\x1b\x45-\xc4\xd1]",
    rb"[\x02-\x04]%b" % _BLOCK_TYPE,
    rb"[\x0c\x0d\x20-\x26\x3f-\x42\xd0\xd2]%b" % _NUMBER,
    rb"[\x11\x13]%b%b" % (_NUMBER, _NUMBER),
    rb"[\x28-\x3e]%b" % _PLACE,
    rb"\x43.{4}",
    rb"\x44.{8}",
    rb"\xfc[\x00-\x07\x13-\x16]",
    rb"\xfc[\x09\x0b\x0d\x0f-\x11]%b" % _NUMBER,
    rb"\xfc[\x08\x0a\x0c\x0e]%b%b" % (_NUMBER, _NUMBER),
    rb"\xfd[\x00-\x0b\x5c\x5d]%b" % _PLACE,
    rb"\xfd[\x0c\x0d].{16}",
    rb"\xfd[\x15-\x22].",
    rb"\xfd[\x54-\x5b]%b." % _PLACE,
    rb"\xfd(?:[\x0e-\x14\x23-\x53\x5e-\x7f]|[\x80-\xff]\x01|[\x80-\x93]\x02)",
)
"""Every instruction except calls of functions by index and instructions with a list."""

_RUN = re.compile(b"(?:%b)*+" % b"|".join(_OTHERS), re.DOTALL)
_CALLS = (0x10, 0x12)
_BRANCH_TABLE, _TYPED_SELECT = 0x0E, 0x1C
_NULLABLE, _HEAP_TYPES = 0x63, (0x6F, 0x70)


def rewrite_calls(body: bytes, instead: Mapping[int, int]) -> bytes:
    """Return a function's body with calls of the keys of ``instead`` redirected to functions of the same types.

    A body with an unknown instruction is returned unchanged.
    """
    reader = Reader(body)
    read_locals(reader)
    at, kept = reader.at, 0
    written: list[bytes] = []
    while True:
        run = _RUN.match(body, at)
        at = run.end() if run else at
        if at == len(body):
            return b"".join([*written, body[kept:]])
        reader = Reader(body, at)
        instruction = reader.byte()
        if instruction in _CALLS:
            operand = reader.at
            callee = reader.number()
            if callee in instead:
                written += body[kept:operand], number(instead[callee])
                kept = reader.at
        elif instruction == _BRANCH_TABLE:
            for _ in range(reader.number() + 1):
                reader.number()
        elif instruction == _TYPED_SELECT:
            for _ in range(reader.number()):
                _read_value_type(reader)
        else:
            return body
        at = reader.at


def read_locals(reader: Reader) -> int:
    """Read the locals at the beginning of a function's body; return their number."""
    count = 0
    for _ in range(reader.number()):
        count += reader.number()
        _read_value_type(reader)
    return count


def _read_value_type(reader: Reader) -> None:
    byte = reader.byte()
    if byte != _NULLABLE:
        value_type(byte)
    elif (heap_type := reader.byte()) not in _HEAP_TYPES:
        raise InvalidModule(f"a local is a reference to 0x{heap_type:02x}, which transform hosts do not know")

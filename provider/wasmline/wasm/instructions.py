"""The code of a function, read just far enough to find the calls in it. Source: the core specification, "Instructions".

Only for code that the runtime found valid, without the proposals that ``engine.SETTINGS`` turns off: then a value type
takes one byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from wasmline.wasm.binary import Reader, number

_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
_PLACE = rb"(?:(?:[\x00-\x3f]|[\x80-\xbf]%b)|(?:[\x40-\x7f]|[\xc0-\xff]%b)%b)%b" % ((_NUMBER,) * 4)
"""An alignment, which says whether the number of a memory comes next, and an offset."""

_OTHERS = (
    rb"[\x00\x01\x05\x0b\x0f\x1a\x1b\x45-\xc4\xd1]",
    rb"[\x02-\x04\x0c\x0d\x20-\x26\x3f-\x42\xd0\xd2]%b" % _NUMBER,
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
"""Every instruction but calls of functions by their numbers and those that hold a list."""

_RUN = re.compile(b"(?:%b)*+" % b"|".join(_OTHERS), re.DOTALL)
_CALLS = (0x10, 0x12)
_BRANCH_TABLE, _TYPED_SELECT = 0x0E, 0x1C


def with_callees(body: bytes, instead: Mapping[int, int]) -> bytes:
    """Return a function's body that calls other functions, of the same types, where it calls a key of ``instead``.

    A body with an instruction that is unknown here is returned as it is.
    """
    reader = Reader(body)
    for _ in range(reader.number()):
        reader.number()
        reader.byte()
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
            reader.vector()
        else:
            return body
        at = reader.at

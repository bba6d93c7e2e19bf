"""Guest and shim as one module: the calls of every record become direct ones, within one instance.

All that the guest has keeps its number: the shim's types, functions, table and memory come behind, and since the guest
is valid without them, nothing in it can name them. Its imports stay and lead to the trampoline; only where its code
calls a function of DIRECT, it calls the shim's instead.
"""

from __future__ import annotations

import wasmtime

from wasmline.errors import InvalidModule
from wasmline.wasm.abi import TRANSFORM
from wasmline.wasm.binary import (
    CODE,
    DATA,
    DATA_COUNT,
    ELEMENT,
    EXPORT,
    FUNCTION,
    GLOBAL,
    IMPORT,
    MEMORY,
    PREAMBLE_BYTES,
    START,
    TABLE,
    TYPE,
    Reader,
    names,
    number,
    sections,
    vector,
)
from wasmline.wasm.declarations import Declarations, declarations
from wasmline.wasm.instructions import with_callees
from wasmline.wasm.shim import shim
from wasmline.wasm.trampoline import GUEST_EXPORT, SHIM_EXPORT

DIRECT = ("read_next_record", "write_record", "write_record_with_options")
"""What a guest calls for every record."""

_ORDER = (TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, DATA_COUNT, CODE, DATA)
_NONE = number(0)


def joined(wasm: bytes) -> bytes:
    """Return a transform that speaks the ABI with the shim in it.

    Raises InvalidModule for more memories than one: the limits are of the guest's only memory.
    """
    guest = declarations(wasm)
    if len(guest.memories) > 1:
        raise InvalidModule(f"the module cannot be instantiated: it has {len(guest.memories)} memories, not one")
    host = bytes(wasmtime.wat2wasm(shim(guest)))
    theirs, ours = sections(wasm), sections(host)
    ours[TYPE] = _without(len(guest.types), ours[TYPE])
    ours.pop(IMPORT)
    theirs[CODE] = _with_direct_calls(theirs.get(CODE, _NONE), guest, ours[EXPORT])
    theirs[EXPORT] = _renamed(theirs[EXPORT])
    both = {kind: _both(theirs.get(kind, _NONE), content) for kind, content in ours.items()}
    content = [(kind, (theirs | both)[kind]) for kind in _ORDER if kind in theirs | both]
    content += [(0, section) for section in (*names(wasm), *names(host))]
    return wasm[:PREAMBLE_BYTES] + b"".join(bytes([kind]) + vector(section) for kind, section in content)


def _both(first: bytes, second: bytes) -> bytes:
    """Return the content of a section with the items of two."""
    readers = Reader(first), Reader(second)
    return number(sum(reader.number() for reader in readers)) + b"".join(reader.rest() for reader in readers)


def _without(stand_ins: int, types: bytes) -> bytes:
    reader = Reader(types)
    left = reader.number() - stand_ins
    for _ in range(stand_ins):
        reader.byte()
        reader.vector()
        reader.vector()
    return number(left) + reader.rest()


def _renamed(exports: bytes) -> bytes:
    """Return a guest's exports under names that differ from the shim's."""
    reader = Reader(exports)
    count = reader.number()
    names = (vector(GUEST_EXPORT.encode() + reader.vector()) for _ in range(count))
    return number(count) + b"".join(name + reader.take(1) + number(reader.number()) for name in names)


def _with_direct_calls(code: bytes, guest: Declarations, exports: bytes) -> bytes:
    reader = Reader(exports)
    provided = {}
    for _ in range(reader.number()):
        name, _, index = reader.name(), reader.byte(), reader.number()
        provided[name] = index
    instead = {
        index: provided[SHIM_EXPORT + item.name]
        for index, item in enumerate(guest.imports)
        if item.module == TRANSFORM and item.name in DIRECT
    }
    reader = Reader(code)
    count = reader.number()
    return number(count) + b"".join(vector(with_callees(reader.vector(), instead)) for _ in range(count))

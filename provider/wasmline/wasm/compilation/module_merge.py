"""Links guest and shim to one module: calls for every record become direct, within one instance.

The guest's items keep their indices: the shim's types, functions, table and memory follow them. Its imports stay and
lead to the trampoline; only calls of functions of DIRECT are redirected to the shim's.

The guest cannot address items of the shim, and that does not depend on a correct parse of its code here: the rewritten
guest is validated with ``stubs`` in place of the shim. There, the memory, the table and the functions of the shim do
not exist, except those of DIRECT, which any guest may call.
"""

from __future__ import annotations

from collections.abc import Mapping

import wasmtime

from wasmline.errors import InvalidModule
from wasmline.wasm.abi import TRANSFORM
from wasmline.wasm.binary.call_rewriting import rewrite_calls
from wasmline.wasm.binary.module_types import Declarations, declarations
from wasmline.wasm.binary.name_truncation import truncate_names
from wasmline.wasm.binary.reader import (
    CODE,
    CUSTOM,
    DATA,
    DATA_COUNT,
    ELEMENT,
    EXPORT,
    FUNCTION,
    GLOBAL,
    IMPORT,
    MEMORY,
    START,
    TABLE,
    TYPE,
    Reader,
    name_sections,
    number,
    sections,
    vector,
)
from wasmline.wasm.compilation.wasm_validation import validate
from wasmline.wasm.shim.import_trampoline import GUEST_EXPORT, SHIM_EXPORT
from wasmline.wasm.shim.module import shim, stubs

_ORDER = (TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, DATA_COUNT, CODE, DATA)
_NONE = number(0)
_EMPTY = b"\0asm\x01\0\0\0"


def link_shim(wasm: bytes) -> bytes:
    """Return a transform of the ABI linked with the shim.

    Raises InvalidModule for more than one memory, as the limits apply to the guest's only memory, and for code that is
    invalid for a guest once its calls are direct.
    """
    guest = declarations(wasm)
    if len(guest.memories) > 1:
        raise InvalidModule(f"the module cannot be instantiated: it has {len(guest.memories)} memories, not one")
    shim_module, stub_module = (bytes(wasmtime.wat2wasm(text(guest))) for text in (shim, stubs))
    direct = _functions(stub_module)
    if not direct.items() <= _functions(shim_module).items():
        raise AssertionError("the functions of DIRECT have other indices in the shim than in the stubs")
    guest_sections = sections(wasm)
    guest_sections[CODE] = _with_direct_calls(guest_sections.get(CODE, _NONE), guest, direct)
    guest_sections[EXPORT] = _renamed(guest_sections[EXPORT])
    validate(_module(guest_sections, guest, stub_module))
    return _module(guest_sections, guest, shim_module) + b"".join(
        _section(CUSTOM, names) for names in (*truncate_names(name_sections(wasm)), *name_sections(shim_module))
    )


def _module(guest_sections: dict[int, bytes], guest: Declarations, host: bytes) -> bytes:
    """Return a module of a guest's sections, with the host's items after the guest's."""
    host_sections = sections(host)
    host_sections[TYPE] = _without(len(guest.types), host_sections[TYPE])
    host_sections.pop(IMPORT)
    content = guest_sections | {
        kind: _both(guest_sections.get(kind, _NONE), added) for kind, added in host_sections.items()
    }
    return _EMPTY + b"".join(_section(kind, content[kind]) for kind in _ORDER if kind in content)


def _section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + vector(content)


def _functions(module: bytes) -> dict[str, int]:
    """Return the indices of the functions that a module exports, by their names in the ABI."""
    reader = Reader(sections(module)[EXPORT])
    exports = [(reader.name(), reader.byte(), reader.number()) for _ in range(reader.number())]
    return {name.removeprefix(SHIM_EXPORT): index for name, kind, index in exports if kind == 0}


def _both(first: bytes, second: bytes) -> bytes:
    """Return the content of a section with the items of two."""
    readers = Reader(first), Reader(second)
    return number(sum(reader.number() for reader in readers)) + b"".join(reader.remaining() for reader in readers)


def _without(placeholders: int, types: bytes) -> bytes:
    reader = Reader(types)
    left = reader.number() - placeholders
    for _ in range(placeholders):
        reader.byte()
        reader.vector()
        reader.vector()
    return number(left) + reader.remaining()


def _renamed(exports: bytes) -> bytes:
    """Return a guest's exports under names that differ from the shim's."""
    reader = Reader(exports)
    count = reader.number()
    names = (vector(GUEST_EXPORT.encode() + reader.vector()) for _ in range(count))
    return number(count) + b"".join(name + reader.take(1) + number(reader.number()) for name in names)


def _with_direct_calls(code: bytes, guest: Declarations, direct: Mapping[str, int]) -> bytes:
    instead = {
        index: direct[item.name]
        for index, item in enumerate(guest.imports)
        if item.module == TRANSFORM and item.name in direct
    }
    reader = Reader(code)
    count = reader.number()
    return number(count) + b"".join(vector(rewrite_calls(reader.vector(), instead)) for _ in range(count))

"""Compiles a transform, in a subprocess where that may take long.

The work on a function grows with the product of its locals and its code, or of its code and its operand stack, and with
blocks of many results faster still, so that a module of some kilobytes can take minutes and gigabytes; and the runtime
cannot be interrupted while it compiles.
"""

from __future__ import annotations

import wasmtime

from wasmline.errors import InvalidModule
from wasmline.wasm.abi import abi_version
from wasmline.wasm.binary import CODE, Reader, sections
from wasmline.wasm.declarations import declarations
from wasmline.wasm.engine import new_engine
from wasmline.wasm.instructions import read_locals
from wasmline.wasm.joined import joined
from wasmline.wasm.limited_process import call_limited
from wasmline.wasm.validation import may_take_long, validate

DEMANDING_FUNCTION = 1_000_000
"""Locals times bytes of code. The functions that Go, Rust and C++ make have less than half of it."""

DEMANDING_MODULE = 100_000_000
"""The sum over all functions, each with its operand stack: some seconds. Only large modules of Go have as much."""

BYTES_PER_OPERAND = 64
"""So much code costs as much as one more local: that many operands may be alive at once, but each is cheap."""

COMPILE_CPU_S = 120


def compile_transform(wasm: bytes) -> bytes:
    """Return the code of a transform with the shim in it, ready for ``Module.deserialize``.

    Raises InvalidModule, also for one that takes longer than ``COMPILE_CPU_S``, and what ``abi_version`` raises.
    """
    validate(wasm)
    abi_version(declarations(wasm))
    return (
        call_limited(f"{__name__}:compile_valid", wasm, cpu_s=COMPILE_CPU_S)
        if is_demanding(wasm)
        else compile_valid(wasm)
    )


def compile_valid(wasm: bytes) -> bytes:
    """Return the code of a valid transform."""
    whole = joined(wasm)
    try:
        return bytes(wasmtime.Module(new_engine(), whole).serialize())
    except wasmtime.WasmtimeError as error:
        raise InvalidModule(f"the module does not compile: {' '.join(str(error).split())[:500]}") from error


def is_demanding(wasm: bytes) -> bool:
    """Return true if the compilation of a valid module may take longer than anybody waits."""
    types = declarations(wasm).types
    # A type may be of a block too, and a loop carries what it takes.
    if may_take_long(wasm) or any(len(kind.results) > 1 for kind in types):
        return True
    parameters = max((len(kind.parameters) for kind in types), default=0)
    bodies = Reader(sections(wasm).get(CODE, b"\0"))
    total = 0
    for _ in range(bodies.number()):
        body = bodies.vector()
        locals_ = parameters + read_locals(Reader(body))
        total += (locals_ + len(body) // BYTES_PER_OPERAND) * len(body)
        if locals_ * len(body) > DEMANDING_FUNCTION or total > DEMANDING_MODULE:
            return True
    return False

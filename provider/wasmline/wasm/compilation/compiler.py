"""Compiles a transform, in a subprocess if that may take long.

The cost of a function grows with the product of its locals and its code, or of its code and its operand stack, and
faster with blocks of many results; each function and each reference to one costs far more than its bytes. So a module
of some kilobytes can take minutes and gigabytes, and the runtime cannot be interrupted while it compiles.
"""

from __future__ import annotations

import wasmtime

from wasmline.errors import InvalidModule
from wasmline.wasm.abi import abi_version
from wasmline.wasm.binary.call_rewriting import read_locals
from wasmline.wasm.binary.module_types import Declarations, declarations
from wasmline.wasm.binary.reader import CODE, ELEMENT, EXPORT, FUNCTION, GLOBAL, IMPORT, TABLE, TYPE, Reader, sections
from wasmline.wasm.compilation.limited_process import call_limited
from wasmline.wasm.compilation.module_merge import link_shim
from wasmline.wasm.compilation.wasm_validation import may_take_long, validate
from wasmline.wasm.engine import new_engine

EXPENSIVE_FUNCTION_COST = 1_000_000
"""Maximum of locals times bytes of code. Functions compiled from Go, Rust and C++ have less than half of it."""

EXPENSIVE_MODULE_COST = 100_000_000
"""Maximum of the sum over all functions, with operand stacks: some seconds. Modules of large functions reach it."""

BYTES_PER_OPERAND = 8
"""Bytes of code that cost as much as one more local: live operands, nested loops, indirect calls."""

SMALL_SECTION_BYTES = {
    TYPE: 2**16,
    IMPORT: 2**16,
    FUNCTION: 2**13,
    TABLE: 2**10,
    GLOBAL: 2**14,
    EXPORT: 2**18,
    ELEMENT: 2**14,
    CODE: 2**19,
}
"""Sections of these sizes are compiled in about two seconds at most, with any content. C++ has smaller ones."""

COMPILE_CPU_S = 120


def compile_transform(wasm: bytes) -> bytes:
    """Return the code of a transform with the shim in it, ready for ``Module.deserialize``.

    Raises InvalidModule, also for one that takes longer than ``COMPILE_CPU_S``, and the errors of ``abi_version``.
    """
    validate(wasm)
    declared = declarations(wasm)
    abi_version(declared)
    if is_expensive(wasm, declared):
        return call_limited(f"{__name__}:compile_valid", wasm, cpu_s=COMPILE_CPU_S)
    return compile_valid(wasm)


def compile_valid(wasm: bytes) -> bytes:
    """Return the code of a valid transform."""
    whole = link_shim(wasm)
    try:
        return bytes(wasmtime.Module(new_engine(), whole).serialize())
    except wasmtime.WasmtimeError as error:
        raise InvalidModule(f"the module does not compile: {' '.join(str(error).split())[:500]}") from error


def is_expensive(wasm: bytes, declared: Declarations) -> bool:
    """Return True if the compilation of a valid module with these declarations may take more than some seconds."""
    content = sections(wasm)
    return (
        may_take_long(wasm)
        or any(len(content.get(kind, b"")) > most for kind, most in SMALL_SECTION_BYTES.items())
        # A type may be of a block too, and a loop carries what it takes.
        or any(len(kind.results) > 1 for kind in declared.types)
        # Each access is counted by the collector's code.
        or "externref" in {*(table.holds for table in declared.tables), *(item.holds for item in declared.globals)}
        or _has_demanding_function(content.get(CODE, b"\0"), declared)
    )


def _has_demanding_function(code: bytes, declared: Declarations) -> bool:
    parameters = max((len(kind.parameters) for kind in declared.types), default=0)
    bodies, total = Reader(code), 0
    for _ in range(bodies.number()):
        body = bodies.vector()
        locals_ = parameters + read_locals(Reader(body))
        total += (locals_ + len(body) // BYTES_PER_OPERAND) * len(body)
        if locals_ * len(body) > EXPENSIVE_FUNCTION_COST or total > EXPENSIVE_MODULE_COST:
            return True
    return False

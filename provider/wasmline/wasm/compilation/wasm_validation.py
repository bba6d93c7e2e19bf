"""Validates modules by the rules of the engine, within bounds of time and memory.

The engine's validator is linear except for one factor: an instruction handles all values of its type or its label.
The foreign call cannot be interrupted, so a module that may therefore take long is validated in a subprocess.
"""

from __future__ import annotations

import wasmtime

from wasmline.errors import InvalidModule
from wasmline.transform_limits import MAX_MODULE_BYTES
from wasmline.wasm.binary.module_types import MAX_TYPE_BYTES, function_type
from wasmline.wasm.binary.reader import TYPE, Reader, sections
from wasmline.wasm.compilation.limited_process import call_limited
from wasmline.wasm.engine import new_engine

MAGIC = b"\0asm"

MAX_STEPS = 50_000_000
"""Maximum of module bytes times values of the widest type: at most half a second. Large modules of Go have more."""

MAX_ARITY = 1_000
"""Maximum parameters or results of a function in the engine."""

VALIDATE_CPU_S = 5


def validate(wasm: bytes, **changes: bool) -> None:
    """Raise InvalidModule for bytes that the engine rejects, and for WebAssembly text.

    ``changes`` to the engine's configuration. Takes at most ``VALIDATE_CPU_S`` seconds of CPU time.
    """
    if wasm[:4] != MAGIC:
        raise InvalidModule("not a WebAssembly module: the first bytes are not \\0asm; is it the file the build wrote?")
    if len(wasm) > MAX_MODULE_BYTES:
        raise InvalidModule(f"the module has {len(wasm):,} bytes; the maximum is {MAX_MODULE_BYTES:,}: strip it")
    if reason := validation_error(wasm, **changes):
        raise InvalidModule(f"not a WebAssembly module this host can run: {' '.join(reason.split())[:500]}")


def validation_error(wasm: bytes, **changes: bool) -> str | None:
    """Return why an engine with ``changes`` rejects a module; None if it accepts it.

    Raises InvalidModule for one that takes longer than ``VALIDATE_CPU_S``.
    """
    if may_take_long(wasm):
        options = [f"{name}={int(value)}" for name, value in changes.items()]
        return call_limited(f"{__name__}:validate_in_subprocess", wasm, *options, cpu_s=VALIDATE_CPU_S).decode() or None
    return _validation_error(wasm, changes)


def may_take_long(wasm: bytes) -> bool:
    """Return True for bytes, valid or not, whose validation may take more than ``MAX_STEPS`` steps."""
    return len(wasm) * MAX_ARITY > MAX_STEPS and len(wasm) * _widest_type(wasm) > MAX_STEPS


def _widest_type(wasm: bytes) -> int:
    try:
        types = sections(wasm).get(TYPE, b"\0")
        if len(types) > MAX_TYPE_BYTES:
            return MAX_ARITY
        reader = Reader(types)
        kinds = (function_type(reader) for _ in range(reader.number()))
        return max((max(len(kind.parameters), len(kind.results)) for kind in kinds), default=1)
    except InvalidModule:
        return MAX_ARITY


def _validation_error(wasm: bytes, changes: dict[str, bool]) -> str | None:
    try:
        wasmtime.Module.validate(new_engine(**changes), wasm)
    except wasmtime.WasmtimeError as error:
        return str(error)
    return None


def validate_in_subprocess(wasm: bytes, *options: str) -> bytes:
    """Return the engine's reason to reject a module, empty for none."""
    changes = {name: value == "1" for name, _, value in (option.partition("=") for option in options)}
    return (_validation_error(wasm, changes) or "").encode()

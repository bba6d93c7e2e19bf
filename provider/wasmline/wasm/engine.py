"""Configuration of the WebAssembly engine: settings of the compiler, and features that a guest may use."""

from __future__ import annotations

import os
from typing import Any

import wasmtime
from wasmtime import _ffi

from wasmline.wasm.trap_handlers import TRAP_HANDLERS

MAX_STACK_BYTES = 1 << 20
"""Size of a guest's call stack. It is part of its thread's, so it must stay well below a thread's usual 8 MiB."""

SETTINGS: dict[str, Any] = {
    "epoch_interruption": True,  # the watchdog stops a guest by this
    "max_wasm_stack": MAX_STACK_BYTES,
    "memory_may_move": False,  # 4 GiB of addresses are reserved per memory: the host keeps addresses in the shim's
    "wasm_threads": False,  # the watchdog cannot interrupt memory.atomic.wait
    "wasm_memory64": False,  # the ABI's pointers are 32 bits
    # Brokers reject these too, and the runtime aborts the process when it is asked for their signatures.
    "wasm_gc": False,
    "wasm_exceptions": False,
    "wasm_function_references": False,
    # Relaxed SIMD gives the same on every processor. The sign and the payload of a NaN are the processor's, with or
    # without it: canonical NaNs would make arithmetic on floats half as slow again.
    "wasm_relaxed_simd_deterministic": True,
}

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def new_engine(**changes: bool) -> wasmtime.Engine:
    """Return an engine with Wasmline's configuration; engines of the same settings can share compiled code.

    With ``changes``, it validates a module by the rules of another host.
    """
    config = wasmtime.Config()
    for name, value in {**SETTINGS, **changes}.items():
        setattr(config, name, value)
    # The compiler's thread pool does not survive a fork: a child that waited for it would wait forever.
    config.parallel_compilation = not _forked
    engine = wasmtime.Engine(config)
    TRAP_HANDLERS.keep(_ffi.dll.wasm_engine_new)
    return engine

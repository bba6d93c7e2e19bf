"""The one configuration of the WebAssembly engine: what code is compiled with, and what a guest may use."""

from __future__ import annotations

import os
from typing import Any

import wasmtime

MAX_STACK_BYTES = 1 << 20
"""A guest's call stack. It is part of its thread's, so it must stay well below the usual 8 MiB of a thread."""

SETTINGS: dict[str, Any] = {
    "epoch_interruption": True,  # how the watchdog stops a guest
    "max_wasm_stack": MAX_STACK_BYTES,
    "memory_may_move": False,  # 4 GiB of addresses are reserved per memory: the host keeps addresses in the shim's
    "wasm_threads": False,  # memory.atomic.wait would block where no watchdog can reach
    "wasm_memory64": False,  # the ABI's pointers are 32 bits
    # Brokers refuse these too, and the runtime aborts the process when it is asked for the signatures they bring.
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
    """Return an engine of our configuration; compiled code moves between engines of the same settings.

    One with ``changes`` is for validating a module, by what another host would take.
    """
    config = wasmtime.Config()
    for name, value in {**SETTINGS, **changes}.items():
        setattr(config, name, value)
    # The compiler's thread pool does not survive a fork: a child that waited for it would wait for ever.
    config.parallel_compilation = not _forked
    return wasmtime.Engine(config)

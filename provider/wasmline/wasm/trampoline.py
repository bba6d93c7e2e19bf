"""The trampoline: the module whose exports a guest's imports are linked to.

A guest must be instantiated after what it imports, and the shim after the guest, whose memory it imports. The
trampoline breaks the circle: each of its exports calls through a table that the shim fills when it is instantiated.
Until then (in a wasm ``start`` section) a call traps. Functions that need neither state nor memory are answered here.
"""

from __future__ import annotations

from wasmline.wasm.abi import FUNCTIONS
from wasmline.wasm.schema_registry import LOOKUPS
from wasmline.wasm.unsupported import CHECKS, WASI_NOSYS
from wasmline.wasm.wat import function_type

WASI_BADF = 8

SHIM_FUNCTIONS = (
    "read_batch_header",
    "read_next_record",
    "write_record",
    "write_record_with_options",
    "args_get",
    "args_sizes_get",
    "environ_get",
    "environ_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "fd_write",
    "poll_oneoff",
    "proc_exit",
    "random_get",
    *CHECKS,
    *LOOKUPS,
)
"""What the shim implements, in the order of the table."""

_ANSWERS = {
    "sched_yield": "(i32.const 0)",
    # A libc asks for preopened folders from descriptor 3 on until it is told that there is no such descriptor.
    "fd_prestat_get": f"(select (i32.const {WASI_NOSYS}) (i32.const {WASI_BADF}) "
    "(i32.lt_u (local.get 0) (i32.const 3)))",
}


def trampoline() -> str:
    """Return the trampoline as WebAssembly text. Export names are unique across the three modules it stands for."""
    functions = "\n".join(_function(name, kind) for names in FUNCTIONS.values() for name, kind in names.items())
    size = len(SHIM_FUNCTIONS)
    return f'(module (table (export "table") {size} {size} funcref)\n{functions})'


def _function(name: str, signature: str) -> str:
    return f'(func (export "{name}") {function_type(signature)} {_body(name, signature)})'


def _body(name: str, signature: str) -> str:
    if not signature:
        return ""  # an ABI marker
    if name not in SHIM_FUNCTIONS:
        return _ANSWERS.get(name, f"(i32.const {WASI_NOSYS})")
    arguments = " ".join(f"(local.get {index})" for index in range(len(signature.partition(":")[0])))
    return f"(call_indirect {function_type(signature)} {arguments} (i32.const {SHIM_FUNCTIONS.index(name)}))"

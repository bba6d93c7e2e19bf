"""The trampoline: the module whose exports a guest's imports are linked to.

A guest's imports must exist before the guest, but the shim is a part of the guest. The trampoline breaks the cycle:
each of its exports calls through a table that a third module, the wiring, fills when the guest is instantiated; the
wiring also passes the host's two functions to the shim. Until then (in a wasm ``start`` section) a call traps.
Functions without state and memory are implemented here. Calls for every record bypass the trampoline: ``link_shim``
makes them direct, and before the first batch they report that there is none.
"""

from __future__ import annotations

from wasmline.wasm.abi import FUNCTIONS
from wasmline.wasm.shim.schema_registry import LOOKUPS
from wasmline.wasm.shim.wasi_stubs import CHECKS, WASI_NOSYS
from wasmline.wasm.shim.wat import call_through, function_type

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
"""Functions of the shim, in the order of the table."""

HOST_FUNCTIONS = {"next_batch": ":i", "flush": "i:i"}
"""Functions of the host for the shim, in the order of the shim's table."""

SHIM_EXPORT = "shim."
GUEST_EXPORT = "guest."
"""Prefixes of export names in the linked module."""

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
    return call_through("0", SHIM_FUNCTIONS, name, signature)


def wiring() -> str:
    """Return, as WebAssembly text, the module that fills the trampoline's table and the shim's."""
    kinds = {name: kind for names in FUNCTIONS.values() for name, kind in names.items()}
    shims = {name: kinds[name] for name in SHIM_FUNCTIONS}
    return f"""(module
  (import "trampoline" "table" (table $trampoline {len(shims)} funcref))
  (import "guest" "{SHIM_EXPORT}host" (table $shim {len(HOST_FUNCTIONS)} funcref))
  {_imported("guest", SHIM_EXPORT, shims)}
  {_imported("host", "", HOST_FUNCTIONS)}
  (elem (table $trampoline) (i32.const 0) func {" ".join(f"${name}" for name in shims)})
  (elem (table $shim) (i32.const 0) func {" ".join(f"${name}" for name in HOST_FUNCTIONS)}))"""


def _imported(module: str, prefix: str, functions: dict[str, str]) -> str:
    return "".join(
        f'(import "{module}" "{prefix}{name}" (func ${name} {function_type(kind)}))' for name, kind in functions.items()
    )

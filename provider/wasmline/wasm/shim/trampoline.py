"""The trampoline: the module whose exports a guest's imports are linked to.

What a guest imports must be there before the guest, and the shim, which is a part of it, is not. The trampoline
breaks the circle: each of its exports calls through a table that is filled when the guest is instantiated, by a third
module, the wiring, which hands the shim the host's two functions as well. Until then (in a wasm ``start`` section) a
call traps. Functions that need neither state nor memory are answered here. The calls of every record do not come this
way: ``joined`` makes them direct, and before the first batch they answer that there is none.
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
"""What the shim implements, in the order of the table."""

HOST_FUNCTIONS = {"next_batch": ":i", "flush": "i:i"}
"""What the host gives the shim, in the order of the shim's table."""

SHIM_EXPORT = "shim."
GUEST_EXPORT = "guest."
"""How the names of exports begin in the module that is both."""

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

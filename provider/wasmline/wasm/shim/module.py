"""The shim: one WebAssembly module with every function that a guest may import, assembled as text.

It is merged into the guest (``link_shim``) and has a memory of its own, where the host writes a batch's columns and
reads the outputs'. So the guest's record loop never leaves WebAssembly: the host is entered once per batch
(``next_batch``) and when the outputs outgrow their columns (``flush``).
"""

from __future__ import annotations

from wasmline.wasm.abi import FUNCTIONS, TRANSFORM
from wasmline.wasm.binary.module_types import Declarations, FunctionType
from wasmline.wasm.shim.import_trampoline import HOST_FUNCTIONS, SHIM_EXPORT, SHIM_FUNCTIONS
from wasmline.wasm.shim.redpanda_transform import batch_functions, record_functions
from wasmline.wasm.shim.schema_registry import schema_registry
from wasmline.wasm.shim.wasi import wasi
from wasmline.wasm.shim.wasi_stubs import wasi_stubs
from wasmline.wasm.shim.wat import call_through, function_type

DIRECT = ("read_next_record", "write_record", "write_record_with_options")
"""Functions that a guest calls for every record: called directly, not through the trampoline."""


def shim(guest: Declarations) -> str:
    """Return the shim as WebAssembly text. The functions of DIRECT come first, as in ``stubs``."""
    return f"""(module
  {_stand_ins(guest)}
  (memory $own (export "{SHIM_EXPORT}memory") 1)
  (table $host (export "{SHIM_EXPORT}host") {len(HOST_FUNCTIONS)} funcref)
  {"".join(map(_export, SHIM_FUNCTIONS))}
  {record_functions()}
  {"".join(_host_function(name, kind) for name, kind in HOST_FUNCTIONS.items())}
  {batch_functions()}
  {wasi()}
  {wasi_stubs()}
  {schema_registry()})"""


def stubs(guest: Declarations) -> str:
    """Return a module with the functions of DIRECT, without code, and nothing else of the shim."""
    functions = (f"(func ${name} {function_type(FUNCTIONS[TRANSFORM][name])} (unreachable))" for name in DIRECT)
    return f"(module {_stand_ins(guest)} {''.join(map(_export, DIRECT))} {''.join(functions)})"


def _stand_ins(guest: Declarations) -> str:
    """Return imports in place of a guest's items, so that the items after them have their final indices.

    They share a type that the shim does not use.
    """
    functions = sum(isinstance(item.type, FunctionType) for item in guest.imports) + guest.functions
    return f"""
  {"(type (func (param f64)))" * len(guest.types)}
  {'(import "" "" (func (type 0)))' * functions}
  {'(import "" "" (table 0 funcref))' * len(guest.tables)}
  (import "" "" (memory $guest 0))"""


def _export(name: str) -> str:
    return f'(export "{SHIM_EXPORT}{name}" (func ${name}))'


def _host_function(name: str, signature: str) -> str:
    return f"(func ${name} {function_type(signature)} {call_through('$host', list(HOST_FUNCTIONS), name, signature)})"

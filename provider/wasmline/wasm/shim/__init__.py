"""The shim: WebAssembly text, generated, that is linked into each guest."""

from wasmline.wasm.shim.wat import function_type

__all__ = ["function_type"]

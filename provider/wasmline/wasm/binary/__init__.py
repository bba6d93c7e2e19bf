"""Reads and rewrites WebAssembly binaries."""

from wasmline.wasm.binary.module_types import Declarations, declarations

__all__ = ["Declarations", "declarations"]

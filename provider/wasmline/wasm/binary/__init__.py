"""Reads and rewrites WebAssembly binaries."""

from wasmline.wasm.binary.custom_section import add_last_section, split_last_section
from wasmline.wasm.binary.data_segment import add_data
from wasmline.wasm.binary.module_types import Declarations, declarations

__all__ = ["Declarations", "add_data", "add_last_section", "declarations", "split_last_section"]

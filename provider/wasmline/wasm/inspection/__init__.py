"""Describes modules without running any of their code."""

from wasmline.wasm.inspection.module_inspection import Compatibility, Inspection, Item, MemorySize, inspect

__all__ = ["Compatibility", "Inspection", "Item", "MemorySize", "inspect"]

"""Describes modules without running any of their code."""

from wasmline.wasm.inspection.module_inspection import Compatibility, ImportOrExport, Inspection, MemorySize, inspect

__all__ = ["Compatibility", "ImportOrExport", "Inspection", "MemorySize", "inspect"]

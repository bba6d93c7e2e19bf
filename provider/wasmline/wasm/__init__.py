"""A host of Redpanda's transform ABI: Arrow batches in, Arrow batches out, the record loop inside WebAssembly."""

from wasmline.wasm.abi import check_abi
from wasmline.wasm.inspection.module_inspection import Inspection, inspect
from wasmline.wasm.registry_schemas import Schema
from wasmline.wasm.resource_limits import HostLimits, ResourceLimits
from wasmline.wasm.result import LogLine, RecordFailure, TransformResult
from wasmline.wasm.runtime import CompiledTransform, TransformRuntime
from wasmline.wasm.transform_context import TransformContext
from wasmline.wasm.transform_instance import TransformInstance

__all__ = [
    "CompiledTransform",
    "HostLimits",
    "Inspection",
    "LogLine",
    "RecordFailure",
    "ResourceLimits",
    "Schema",
    "TransformContext",
    "TransformInstance",
    "TransformResult",
    "TransformRuntime",
    "check_abi",
    "inspect",
]

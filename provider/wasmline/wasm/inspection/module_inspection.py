"""Describes a module without running any of its code."""

from __future__ import annotations

from dataclasses import dataclass

from wasmline.digests import digest_of
from wasmline.errors import InvalidModule, ModuleError
from wasmline.wasm.abi import MARKER, TRANSFORM, abi_version, is_provided
from wasmline.wasm.binary.module_types import (
    Declarations,
    Export,
    FunctionType,
    Import,
    Kind,
    MemoryType,
    TableType,
    declarations,
)
from wasmline.wasm.columns.shim_memory import MAX_TABLE_ELEMENTS, MAX_TABLES
from wasmline.wasm.compilation.wasm_validation import validate
from wasmline.wasm.inspection.redpanda_compat import incompatibilities
from wasmline.wasm.resource_limits import PAGE, ResourceLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOrExport:
    """An import, or an export, which has no ``module``. ``type`` is in words: ``(i32, i32) -> i32``, ``17 pages``."""

    module: str | None
    name: str
    kind: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySize:
    """The exported memory, in pages of 64 KiB and in bytes; None for an undeclared maximum."""

    initial_pages: int
    initial_bytes: int
    maximum_pages: int | None
    maximum_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """Whether a host would run the module, and if not, all reasons."""

    accepted: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The description of a module. ``abi`` is None without a transform ABI version; ``functions`` are its own.

    ``wasmline``: compatibility with this host under the given limits; ``redpanda``: with a broker's defaults.
    """

    digest: str
    size_bytes: int
    abi: int | None
    memory: MemorySize | None
    functions: int
    start_section: bool
    imports: tuple[ImportOrExport, ...]
    exports: tuple[ImportOrExport, ...]
    wasmline: Compatibility
    redpanda: Compatibility


def inspect(wasm: bytes, limits: ResourceLimits | None = None) -> Inspection:
    """Return the description of a module, a transform or not. Raises InvalidModule for bytes that are not a module.

    None of its code is run or compiled.
    """
    invalid = _invalid_here(wasm)
    declared = declarations(wasm)
    return Inspection(
        digest=digest_of(wasm),
        size_bytes=len(wasm),
        abi=_abi(declared),
        memory=_memory(declared),
        functions=declared.functions,
        start_section=declared.start_section,
        imports=tuple(_item(item, item.module) for item in declared.imports),
        exports=tuple(_item(item, None) for item in declared.exports),
        wasmline=_verdict(_refusals_here(invalid, declared, limits or ResourceLimits())),
        redpanda=_verdict(incompatibilities(wasm, declared)),
    )


def _invalid_here(wasm: bytes) -> InvalidModule | None:
    """Return why this host rejects a module with 64-bit or shared memory; inspection continues for these."""
    try:
        validate(wasm)
    except InvalidModule as error:
        validate(wasm, wasm_memory64=True, wasm_threads=True)
        return error
    return None


def _abi(declared: Declarations) -> int | None:
    markers = [item for item in declared.imports if item.module == TRANSFORM and item.name.startswith(MARKER)]
    return max((int(item.name.removeprefix(MARKER)) for item in markers if is_provided(item)), default=None)


def _memory(declared: Declarations) -> MemorySize | None:
    for item in declared.exports:
        if item.name == "memory" and isinstance(item.type, MemoryType):
            least, most = item.type.least, item.type.most
            return MemorySize(
                initial_pages=least,
                initial_bytes=least * PAGE,
                maximum_pages=most,
                maximum_bytes=None if most is None else most * PAGE,
            )
    return None


def _item(item: Import | Export, module: str | None) -> ImportOrExport:
    return ImportOrExport(module=module, name=item.name, kind=_kind(item.type), type=str(item.type))


def _kind(kind: Kind) -> str:
    if isinstance(kind, FunctionType):
        return "function"
    if isinstance(kind, MemoryType):
        return "memory"
    return "table" if isinstance(kind, TableType) else "global"


def _verdict(reasons: tuple[str, ...]) -> Compatibility:
    return Compatibility(accepted=not reasons, reasons=reasons)


def _refusals_here(invalid: InvalidModule | None, declared: Declarations, limits: ResourceLimits) -> tuple[str, ...]:
    reasons = []
    if invalid is not None:
        reasons.append(str(invalid))
    else:
        try:
            abi_version(declared)
        except ModuleError as error:
            reasons.append(str(error))
    if len(declared.memories) > 1:
        reasons.append(f"it has {len(declared.memories)} memories; at most one is allowed")
    if len(declared.tables) > MAX_TABLES:
        reasons.append(f"it has {len(declared.tables)} tables; at most {MAX_TABLES} are allowed")
    if (begins := sum(memory.least for memory in declared.memories) * PAGE) > limits.memory_bytes:
        reasons.append(f"its initial memory has {begins:,} bytes, more than its limit of {limits.memory_bytes:,}")
    if (elements := max((table.least for table in declared.tables), default=0)) > MAX_TABLE_ELEMENTS:
        reasons.append(f"a table has {elements:,} initial elements; at most {MAX_TABLE_ELEMENTS:,} are allowed")
    return tuple(reasons)

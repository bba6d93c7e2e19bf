"""Predicts whether a Redpanda broker with its default settings would accept a module, and if not, why.

Two gates: the deploy, where the broker's own parser reads the declarations, and the start, where an engine loads the
module; a broker retries that forever. Derived from the sources of version 25.1; no broker is contacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from wasmline.wasm.abi import (
    MARKER,
    SCHEMA_REGISTRY,
    TRANSFORM,
    WASI,
    is_provided,
    shortened,
    signature,
)
from wasmline.wasm.binary.module_types import Declarations, MemoryType
from wasmline.wasm.compilation.wasm_validation import validation_error
from wasmline.wasm.resource_limits import PAGE

MEMORY_BYTES = 2 * 2**20
"""``data_transforms_per_function_memory_limit``."""

MODULE_BYTES = 10 * 2**20
"""``data_transforms_binary_max_size``."""

TABLE_ELEMENTS = 16_384
NAME_BYTES = 512
PARAMETERS = 128
RESULTS = 64
SIGNATURES = 2**20 // 48
"""Maximum number of types, and of functions, that fit in one MiB of the deploy parser's memory."""

MAX_REASONS_OF_A_KIND = 20

NOT_PROVIDED = (f"{WASI}.fd_fdstat_set_rights", f"{WASI}.proc_raise")


def incompatibilities(wasm: bytes, declared: Declarations) -> tuple[str, ...]:
    """Return the reasons to reject a valid module, each beginning with the gate it fails at; none means accepted.

    There are at most MAX_REASONS_OF_A_KIND of a kind.
    """
    gates = {
        "deploy": (
            *(_size(wasm), _exports(declared), _markers(declared)),
            *(_names(declared), _types(declared), _globals(declared)),
        ),
        "start": (_imports(declared), _memory(declared), _tables(declared), _engine(wasm)),
    }
    return tuple(
        f"at {gate}: {reason}"
        for gate, kinds in gates.items()
        for reasons in kinds
        for reason in islice(reasons, MAX_REASONS_OF_A_KIND)
    )


def _size(wasm: bytes) -> Iterator[str]:
    if len(wasm) > MODULE_BYTES:
        yield f"{len(wasm):,} bytes are more than data_transforms_binary_max_size, {MODULE_BYTES:,}: strip the module"


def _exports(declared: Declarations) -> Iterator[str]:
    exports = {item.name: item.type for item in declared.exports}
    if signature(exports.get("_start")) != "":
        yield "it exports no function _start without parameters and results"
    if not isinstance(exports.get("memory"), MemoryType):
        yield "it exports no memory as memory"


def _markers(declared: Declarations) -> Iterator[str]:
    markers = [item for item in declared.imports if item.name.startswith(MARKER)]
    if not any(item.module == TRANSFORM and is_provided(item) for item in markers):
        yield f"it imports neither {TRANSFORM}.{MARKER}1 nor {MARKER}2, without parameters and results"
    for item in markers:
        if item.module == SCHEMA_REGISTRY and not is_provided(item):
            yield f"it imports {shortened([str(item)])}; brokers support version 0 of the schema registry's ABI"


def _names(declared: Declarations) -> Iterator[str]:
    names = {name for item in declared.imports for name in (item.module, item.name)}
    for name in sorted(names | {item.name for item in declared.exports}):
        if (size := len(name.encode())) > NAME_BYTES:
            yield f"a name of {size:,} bytes, {shortened([name[:20]])}..., is longer than {NAME_BYTES}"


def _types(declared: Declarations) -> Iterator[str]:
    for what, number in (("types", len(declared.types)), ("functions", declared.functions)):
        if number > SIGNATURES:
            yield f"{number:,} {what} are more than its parser takes, {SIGNATURES:,}"
    if any(kind.holds("v128") for kind in declared.types):
        yield "a function takes or returns a v128: keep vectors inside of functions"
    for what, most, sizes in (
        ("parameters", PARAMETERS, [len(kind.parameters) for kind in declared.types]),
        ("results", RESULTS, [len(kind.results) for kind in declared.types]),
    ):
        if max(sizes, default=0) > most:
            yield f"a function has {max(sizes):,} {what}; at most {most} are allowed"


def _globals(declared: Declarations) -> Iterator[str]:
    for index, item in enumerate(declared.globals):
        if item.holds == "v128":
            yield f"global {index} is a v128"
        elif not item.constant:
            yield f"global {index} is not initialized with a single constant"


def _imports(declared: Declarations) -> Iterator[str]:
    missing = {str(item) for item in declared.imports if not is_provided(item) or str(item) in NOT_PROVIDED}
    if missing:
        yield f"brokers do not provide {shortened(sorted(missing))}"


def _memory(declared: Declarations) -> Iterator[str]:
    if len(declared.memories) > 1:
        yield f"it has {len(declared.memories)} memories; at most one is allowed"
    exported = [item for item in declared.exports if isinstance(item.type, MemoryType)]
    if exported and exported[0].name != "memory":
        yield f"the first memory it exports is {exported[0].name}, not memory"
    for memory in declared.memories[:1]:
        if memory.least * PAGE > MEMORY_BYTES:
            yield (
                f"its memory begins with {memory.least * PAGE:,} bytes, data_transforms_per_function_memory_limit is "
                f"{MEMORY_BYTES:,}: link with a smaller stack, or have it raised to {memory.least * PAGE} or more"
            )
        if memory.most is not None:
            yield (
                f"its memory declares a maximum, {memory.most:,} pages, which brokers take for bytes and cannot "
                "reserve: link without one"
            )


def _tables(declared: Declarations) -> Iterator[str]:
    if len(declared.tables) > 1:
        yield f"it has {len(declared.tables)} tables; at most one is allowed"
    for table in declared.tables:
        if table.least > TABLE_ELEMENTS:
            yield f"a table begins with {table.least:,} elements; at most {TABLE_ELEMENTS:,} are allowed"


def _engine(wasm: bytes) -> Iterator[str]:
    """Check for features that this host's engine has but a broker's engine lacks. Nothing is compiled."""
    if reason := validation_error(wasm, gc_support=False):
        yield f"its engine lacks what the module needs: {' '.join(reason.split())}"

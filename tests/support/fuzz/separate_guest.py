"""Two kinds of guests for comparison: one linked to a shim in its own instance, one whose shim's memory is compared."""

from __future__ import annotations

import ctypes
import functools
import random
from typing import Any, cast

import pyarrow as pa
import wasmtime

from wasmline.errors import SandboxViolation
from wasmline.testing.sandbox import CONTEXT
from wasmline.wasm import ResourceLimits, TransformInstance, TransformResult, check_abi
from wasmline.wasm.abi import FUNCTIONS
from wasmline.wasm.binary.module_types import declarations
from wasmline.wasm.columns.control_block import BLOCKS, CLOCKS, INPUT, OUTPUT, OUTPUT_BYTES, STATE, WRITTEN, Block
from wasmline.wasm.columns.shim_memory import MAX_TABLE_ELEMENTS, MAX_TABLES
from wasmline.wasm.compilation import compiler
from wasmline.wasm.engine import new_engine
from wasmline.wasm.guest import CompiledModules, Guest
from wasmline.wasm.resource_limits import HostLimits
from wasmline.wasm.shim.import_trampoline import SHIM_EXPORT, trampoline, wiring
from wasmline.wasm.shim.module import shim

EMPTY = b"\0asm\x01\0\0\0"


class SeparateGuest(Guest):
    """A guest whose calls all lead through the trampoline to a shim in an instance of its own: nothing is rewritten."""

    def _instantiate(self) -> wasmtime.Func:
        code, store = self._code, self._store
        store.set_limits(
            memory_size=self._limits.memory_bytes,
            table_elements=MAX_TABLE_ELEMENTS,
            instances=4,
            tables=MAX_TABLES + 2,
            memories=2,
        )
        with wasmtime.Linker(code.engine) as linker:
            linker.define_func("host", "next_batch", wasmtime.FuncType([], [wasmtime.ValType.i32()]), self._next_batch)
            kind = wasmtime.FuncType([wasmtime.ValType.i32()], [wasmtime.ValType.i32()])
            linker.define_func("host", "flush", kind, self._flush)
            table = linker.instantiate(store, code.trampoline)
            for module in ("trampoline", *FUNCTIONS):
                linker.define_instance(store, module, table)
            linker.define_instance(store, "own", linker.instantiate(store, code.guest))
            memory = cast(wasmtime.Memory, linker.get(store, "own", "memory"))
            linker.define(store, "", "", memory)
            own_shim = wasmtime.Module.deserialize(code.engine, host_code()[2])
            linker.define_instance(store, "guest", linker.instantiate(store, own_shim))
            linker.instantiate(store, code.wiring)
            own_memory = cast(wasmtime.Memory, linker.get(store, "guest", f"{SHIM_EXPORT}memory"))
            start = cast(wasmtime.Func, linker.get(store, "own", "_start"))
        self._furnish(memory, own_memory)
        return start


class WatchedGuest(Guest):
    """A guest in whose shim's memory nothing changes but what its calls may change.

    All that is no column, no text and no cell holds bytes at random before each batch, as another's data would.
    """

    def _let_run(self) -> None:
        if self._initial_memory_bytes is None:
            super()._let_run()
            return
        regions = self._regions()
        self._fill_gaps(regions)
        before, cells = self._copy(), self._cells(OUTPUT)
        super()._let_run()
        if self._flushed or self._cells(OUTPUT) != cells:
            return  # the columns were laid out anew
        after = bytearray(self._copy())
        for start, size, may_change in regions:
            if may_change:
                after[start : start + size] = before[start : start + size]
        assert bytes(after) == before, "a guest changed what it may not change"

    def _cells(self, block: Block) -> dict[str, int]:
        return block.unpack(self._memory.read(block.start, block.size))

    def _copy(self) -> bytes:
        return ctypes.string_at(self._memory.address, self._memory._size)

    def _regions(self) -> list[tuple[int, int, bool]]:
        """Return where something is, how large it is, and whether a batch may change it."""
        cells, inputs = self._cells(OUTPUT), self._cells(INPUT)
        rows, headers = cells["row_capacity"], cells["out_headers_capacity"]
        regions = [(block.start, block.end - block.start, block in (CLOCKS, WRITTEN, STATE)) for block in BLOCKS]
        regions += [(BLOCKS[-1].end, self._static.stderr - BLOCKS[-1].end, False)]
        regions += [(self._static.stderr, self._static.end - self._static.stderr, True)]
        regions += [(self._static.end, inputs["sizes"] - self._static.end, False)]
        regions += [(inputs["sizes"], 4 * inputs["records"], True)]
        regions += [(cells[name], 4 * rows, True) for name in ("row_index", "topic_index")]
        regions += [(cells["out_headers_offsets"], 4 * (rows + 1), True)]
        for column, length in zip(OUTPUT_BYTES, (rows, rows, headers, headers), strict=True):
            regions += [(cells[f"{column}_offsets"], 4 * (length + 1), True)]
            regions += [(cells[f"{column}_valid"], length, True)]
            regions += [(cells[f"{column}_data"], cells[f"{column}_capacity"], True)]
        return regions

    def _fill_gaps(self, regions: list[tuple[int, int, bool]]) -> None:
        rng = random.Random(0)
        end = 0
        for start, size, _ in [*sorted(regions), (self._memory._size, 0, False)]:
            if start > end:
                self._memory.write(end, rng.randbytes(start - end))
            end = max(end, start + size)


class ObservedInstance(TransformInstance):
    """An instance with guests of another kind."""

    def __init__(self, kind: type[Guest], code: CompiledModules, limits: ResourceLimits) -> None:
        self._kind = kind
        super().__init__(code, CONTEXT, limits, HostLimits())

    def _start(self) -> None:
        self._own(self._kind(self._code, self._context, self._limits, self._host))


@functools.cache
def host_code() -> list[bytes]:
    """Return the code of the trampoline, the wiring and a shim that is joined to nothing."""
    texts = (trampoline(), wiring(), shim(declarations(EMPTY)))
    return [bytes(wasmtime.Module(new_engine(), text).serialize()) for text in texts]


def observe(kind: type[Guest], wasm: bytes, batches: list[pa.RecordBatch], limits: ResourceLimits) -> list[Any]:
    """Return what an observed instance makes of some batches: outputs, failed rows, log lines."""
    check_abi(wasm)
    code = (
        bytes(wasmtime.Module(new_engine(), wasm).serialize())
        if kind is SeparateGuest
        else compiler.compile_valid(wasm)
    )
    engine = new_engine()
    guest, first, second = (wasmtime.Module.deserialize(engine, part) for part in (code, *host_code()[:2]))
    whole = CompiledModules(engine=engine, trampoline=first, guest=guest, wiring=second)
    with ObservedInstance(kind, whole, limits) as instance:
        try:
            return [facts(instance.transform(batch)) for batch in batches]
        except SandboxViolation as error:
            raise AssertionError(f"a guest wrote to the shim's memory: {error}") from error


def facts(result: TransformResult) -> Any:
    result.outputs.validate(full=True)
    failures = [(failure.row, type(failure.error).__name__) for failure in result.failures]
    return result.outputs.to_pylist(), failures, [(line.row, line.level, line.text) for line in result.logs]

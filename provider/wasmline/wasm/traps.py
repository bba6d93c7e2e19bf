"""Maps the end of a guest, a trap or an exit, to an error: the only place where the runtime's traps are mapped."""

from __future__ import annotations

from dataclasses import dataclass

import wasmtime

from wasmline.errors import (
    GuestExit,
    GuestOutOfMemory,
    GuestProtocolError,
    GuestTimeout,
    GuestTrap,
    InvalidModule,
    TransformError,
    WasmlineError,
)
from wasmline.printable import one_line
from wasmline.wasm.backtrace import function_names
from wasmline.wasm.columns.control_block import ENDING_EXIT, ENDING_OUTPUT
from wasmline.wasm.panic_message import panic_and_rest, tells_out_of_memory
from wasmline.wasm.resource_limits import PAGE, ResourceLimits

_CODES = {
    wasmtime.TrapCode.STACK_OVERFLOW: "call stack exhausted",
    wasmtime.TrapCode.MEMORY_OUT_OF_BOUNDS: "out of bounds memory access",
    wasmtime.TrapCode.TABLE_OUT_OF_BOUNDS: "undefined element",
    wasmtime.TrapCode.INDIRECT_CALL_TO_NULL: "uninitialized element",
    wasmtime.TrapCode.BAD_SIGNATURE: "indirect call type mismatch",
    wasmtime.TrapCode.INTEGER_OVERFLOW: "integer overflow",
    wasmtime.TrapCode.INTEGER_DIVISION_BY_ZERO: "integer divide by zero",
    wasmtime.TrapCode.BAD_CONVERSION_TO_INTEGER: "invalid conversion to integer",
    wasmtime.TrapCode.UNREACHABLE: "unreachable",
    wasmtime.TrapCode.NULL_REFERENCE: "null reference",
    wasmtime.TrapCode.UNCAUGHT_EXCEPTION: "uncaught exception",
    wasmtime.TrapCode.INTERRUPT: "interrupt",
}
"""Trap names of the specification, and the watchdog's."""

_REFUSED_AT_START = ("memory minimum size", "exceeds memory limits")
_OF_THE_SYSTEM = "(os error "
_MAX_TEXT_LETTERS = 500
_STDOUT_LETTERS = 512
"""Maximum length of the head, and of the tail."""
_SMALL_GROWTH_BYTES = 16 * PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestExitInfo:
    """The facts about a dead guest.

    ``end`` is None if ``_start`` returned. ``unread_bytes`` is the size of the largest record of a batch on which it
    died before it read any. ``stderr`` is the record's, or that of the start; ``stdout`` is that of the start, "" after
    it.
    """

    end: BaseException | None
    ending: int
    exit_status: int
    stderr: str
    stdout: str
    interrupted: bool
    initial_memory_bytes: int
    memory_bytes: int
    unread_bytes: int
    limits: ResourceLimits

    @property
    def short_of_memory(self) -> bool:
        """True if there is evidence that the guest ended because an allocation failed.

        The runtime does not report a rejected growth. The evidence is that the guest's language reports it; or that
        the guest wrote nothing, and had grown until less was left than a small growth takes (1 MiB, or a quarter of a
        small limit); or that it wrote nothing, read nothing, and had to read a record that does not fit in addition
        to its initial memory.
        """
        if self.stderr:
            return tells_out_of_memory(self.stderr)
        limit = self.limits.memory_bytes
        growth = min(_SMALL_GROWTH_BYTES, limit // 4)
        full = self.memory_bytes > self.initial_memory_bytes and self.memory_bytes + growth > limit
        return full or self.initial_memory_bytes + self.unread_bytes > limit

    @property
    def memory(self) -> str:
        """The size of the memory, if more than half of the limit."""
        grown, limit = self.memory_bytes, self.limits.memory_bytes
        if grown == self.initial_memory_bytes or 2 * grown <= limit:
            return ""
        return f"; its memory had grown to {grown} of memory_bytes={limit}"


def classify_exit(exit_info: GuestExitInfo) -> TransformError:
    """Return the error for a guest's end, as one printable line.

    If the guest ended itself, the message begins with its panic. All messages end with its other output: all of it, or
    its head and its tail.
    """
    limits, wrote = exit_info.limits, _wrote(exit_info, one_line(exit_info.stderr))
    if exit_info.end is None:
        return GuestProtocolError(f"the guest returned from _start, which must wait for records for ever{wrote}")
    if exit_info.ending == ENDING_OUTPUT:
        limit = limits.output_bytes_per_record
        return GuestProtocolError(
            f"the guest wrote more than output_bytes_per_record={limit} bytes for one record{wrote}"
        )
    if exit_info.interrupted:
        limit = limits.cpu_ms_per_record
        return GuestTimeout(
            f"the guest used more than cpu_ms_per_record={limit} of CPU time on one record{wrote}", limit_ms=limit
        )
    return _own_end(exit_info, exit_info.end)


def _own_end(exit_info: GuestExitInfo, end: BaseException) -> TransformError:
    panic, rest = panic_and_rest(exit_info.stderr)
    begin, wrote = f"{panic}; " if panic else "", _wrote(exit_info, rest)
    exited, code = exit_info.ending == ENDING_EXIT, trap_code(end)
    if exit_info.short_of_memory and (exited or code == "unreachable"):
        limit = exit_info.limits.memory_bytes
        text = f"the guest ended when its memory had grown to {exit_info.memory_bytes} of memory_bytes={limit}"
        return GuestOutOfMemory(f"{begin}{text}{wrote}", limit_bytes=limit)
    if exited:
        status = exit_info.exit_status
        text = f"the guest exited with status {status}; a transform never exits"
        return GuestExit(f"{begin}{text}{exit_info.memory}{wrote}", status=status)
    return GuestTrap(f"{begin}the guest trapped: {code}{_where(end)}{exit_info.memory}{wrote}", code=code)


def _wrote(exit_info: GuestExitInfo, stderr: str) -> str:
    stdout = _shortened(one_line(exit_info.stdout))
    return (f"; it wrote to stdout: {stdout}" if stdout else "") + (f"; it wrote to stderr: {stderr}" if stderr else "")


def _shortened(text: str) -> str:
    return text if len(text) <= 2 * _STDOUT_LETTERS else f"{text[:_STDOUT_LETTERS]} [...] {text[-_STDOUT_LETTERS:]}"


def instantiation_error(exit_info: GuestExitInfo) -> WasmlineError | MemoryError:
    """Return why the runtime failed to instantiate a module. Its errors have no codes, only texts, none of a guest.

    MemoryError is a failure of the operating system, not of the module.
    """
    limit, text = exit_info.limits.memory_bytes, one_line(str(exit_info.end)[:_MAX_TEXT_LETTERS])
    if _OF_THE_SYSTEM in text:
        return MemoryError(f"the system has no room for a guest and its records: {text}")
    if all(words in text for words in _REFUSED_AT_START):
        return GuestOutOfMemory(
            f"the module starts with more memory than memory_bytes={limit}: {text}", limit_bytes=limit
        )
    return InvalidModule(f"the module cannot be instantiated: {text}")


def trap_code(end: BaseException | None) -> str:
    """Return the specification's name for a trap; "trap" if it has none."""
    code = end.trap_code if isinstance(end, wasmtime.Trap) else None
    return _CODES.get(code, "trap") if code is not None else "trap"


def _where(end: BaseException) -> str:
    if not isinstance(end, wasmtime.Trap):
        return f": {one_line(str(end)[:_MAX_TEXT_LETTERS])}"
    names = function_names(end)
    return f" in {' < '.join(names)}" if names else ""

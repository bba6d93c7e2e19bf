"""Why a guest died, as an error of ours: the one place where the runtime's traps are mapped."""

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
from wasmline.wasm.layout import ENDING_EXIT, ENDING_OUTPUT
from wasmline.wasm.limits import ResourceLimits

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
"""The specification's own words for its traps, and the watchdog's."""

_FRAMES = 3
_NAME_LETTERS = 100
_REFUSED_AT_START = ("memory minimum size", "exceeds memory limits")
_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "memory allocation of")


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The facts about a dead guest.

    ``end`` is None if ``_start`` returned; ``born_with`` is its first memory size; ``unread_bytes`` the size of the
    greatest record of a batch that it was offered and died on before it read any.
    """

    end: BaseException | None
    ending: int
    exit_status: int
    stderr: str
    interrupted: bool
    born_with: int
    memory_bytes: int
    unread_bytes: int
    limits: ResourceLimits

    @property
    def short_of_memory(self) -> bool:
        """True if the guest's last trouble was memory, as far as can be told.

        The runtime does not report a refused growth. What shows it: the guest says so; or it had no room for the
        record that it was to read; or it had grown and could not have doubled again, which is how heaps and vectors
        grow.
        """
        if any(words in self.stderr for words in _OUT_OF_MEMORY):
            return True
        if self.memory_bytes + self.unread_bytes > self.limits.memory_bytes:
            return True
        return self.memory_bytes > self.born_with and 2 * self.memory_bytes > self.limits.memory_bytes


def verdict(death: Death) -> TransformError:
    """Return the error that explains a death, with the first and last words of the guest's stderr in its message."""
    words = f"; it wrote to stderr: {death.stderr}" if death.stderr else ""
    limits = death.limits
    if death.end is None:
        return GuestProtocolError(f"the guest returned from _start, which must wait for records for ever{words}")
    if death.ending == ENDING_OUTPUT:
        limit = limits.output_bytes_per_record
        return GuestProtocolError(
            f"the guest wrote more than output_bytes_per_record={limit} bytes for one record{words}"
        )
    if death.interrupted:
        limit = limits.cpu_ms_per_record
        return GuestTimeout(
            f"the guest used more than cpu_ms_per_record={limit} of CPU time on one record{words}", limit_ms=limit
        )
    code = trap_code(death.end)
    if death.short_of_memory and (death.ending == ENDING_EXIT or code == "unreachable"):
        return _out_of_memory(death, words)
    if death.ending == ENDING_EXIT:
        status = death.exit_status
        return GuestExit(f"the guest exited with status {status}; a transform never exits{words}", status=status)
    return GuestTrap(f"the guest trapped: {code}{_where(death.end)}{words}", code=code)


def _out_of_memory(death: Death, words: str) -> GuestOutOfMemory:
    limit = death.limits.memory_bytes
    return GuestOutOfMemory(
        f"the guest ended when its memory had grown to {death.memory_bytes} of memory_bytes={limit}{words}",
        limit_bytes=limit,
    )


def refusal(death: Death) -> WasmlineError:
    """Return why the runtime would not instantiate a module. Its errors have no codes, only texts."""
    limit, text = death.limits.memory_bytes, " ".join(str(death.end).split())
    if all(words in text for words in _REFUSED_AT_START):
        return GuestOutOfMemory(
            f"the module starts with more memory than memory_bytes={limit}: {text}", limit_bytes=limit
        )
    return InvalidModule(f"the module cannot be instantiated: {text[:500]}")


def trap_code(end: BaseException | None) -> str:
    """Return the specification's name for a trap; "trap" for what has none."""
    code = end.trap_code if isinstance(end, wasmtime.Trap) else None
    return _CODES.get(code, "trap") if code is not None else "trap"


def _where(end: BaseException) -> str:
    if not isinstance(end, wasmtime.Trap):
        return f": {' '.join(str(end).split())[:500]}"
    names = [_printable(frame.func_name) for frame in end.frames if frame.func_name]
    return f" in {' < '.join(names[:_FRAMES])}" if names else ""


def _printable(name: str) -> str:
    """Return a name that a module chose, fit for a message: short, and without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:_NAME_LETTERS])

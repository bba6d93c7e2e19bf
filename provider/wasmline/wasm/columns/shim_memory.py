"""Host access to the shim's memory: raw bytes at an address, the control block, and growth."""

from __future__ import annotations

import ctypes

import wasmtime

from wasmline.errors import RecordTooLarge, SandboxViolation
from wasmline.wasm.columns.control_block import OFFSETS
from wasmline.wasm.resource_limits import ADDRESS_SPACE, PAGE

MAX_TABLES = 7
"""Maximum number of tables of a guest."""
MAX_TABLE_ELEMENTS = 1 << 20


def limit_store(store: wasmtime.Store, *, memory_bytes: int) -> None:
    """Limit the guest's and the host's resources in a store. Each call sets every limit; others would be lifted."""
    store.set_limits(
        memory_size=memory_bytes,
        table_elements=MAX_TABLE_ELEMENTS,
        instances=3,
        tables=MAX_TABLES + 2,  # the trampoline's and the shim's
        memories=2,  # the guest's and the shim's
    )


def sandbox_violation_error(what: str) -> SandboxViolation:
    """Return the error for a store with contents that no guest can write."""
    return SandboxViolation(
        f"a guest's store has content no guest can write: {what}. No output of its batch is used and its instance is "
        "closed; report the module, this is a defect of the host"
    )


class ShimMemory:
    """The host's side of the shim's memory, whose address never changes: the engine reserves its maximum size.

    Must not be used after the store is closed.
    """

    def __init__(self, store: wasmtime.Store, memory: wasmtime.Memory, *, limit: int, guest_limit: int) -> None:
        self._store = store
        self._memory = memory
        self._limit = limit
        self._guest_limit = guest_limit
        self._size = memory.data_len(store)
        self.address = ctypes.addressof(memory.data_ptr(store).contents)
        self._cells = {name: ctypes.c_uint32.from_address(self.address + offset) for name, offset in OFFSETS.items()}
        self._progress = self._cells["progress"]

    def get(self, name: str) -> int:
        """Return a 32-bit cell of the control block."""
        return self._cells[name].value

    def count(self, name: str, most: int) -> int:
        """Return a 32-bit cell of the control block, or raise SandboxViolation if it exceeds ``most``."""
        if (value := self.get(name)) > most:
            raise sandbox_violation_error(f"{name} is {value}, more than {most}")
        return value

    def put(self, **values: int) -> None:
        """Set 32-bit cells of the control block."""
        for name, value in values.items():
            self._cells[name].value = value

    @property
    def progress(self) -> int:
        """The counter that changes with every record; any thread may read it."""
        return self._progress.value

    def reserve(self, end: int) -> None:
        """Make every byte before ``end`` addressable. Raises RecordTooLarge, or MemoryError if the system has none.

        The store's memory limit is for the guest, which is idle meanwhile: it is lifted during the call.
        """
        if end <= self._size:
            return
        pages = (end - self._size + PAGE - 1) // PAGE
        if self._size + pages * PAGE > self._limit:
            raise RecordTooLarge(f"a record and its outputs take {end} bytes of the host; at most {self._limit} fit")
        limit_store(self._store, memory_bytes=ADDRESS_SPACE)
        try:
            self._memory.grow(self._store, pages)
        except wasmtime.WasmtimeError as error:
            raise MemoryError(f"no memory for records and their outputs of {end} bytes: {error}") from error
        finally:
            limit_store(self._store, memory_bytes=self._guest_limit)
        self._size += pages * PAGE

    def write(self, position: int, data: bytes) -> None:
        """Copy bytes in; the caller has reserved the space."""
        ctypes.memmove(self.address + position, data, len(data))

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of some bytes."""
        return ctypes.string_at(self.address + position, size)

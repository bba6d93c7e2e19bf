"""Small guests in WebAssembly text, for tests: well-behaved ones and some that are not.

A guest is a skeleton (the loop that every SDK has) around snippets, one for each thing a guest may do with a record.
Snippets have the record's payload at ``PAYLOAD``, its size in the local ``$size``, and the host's metadata in the cells
below 128.
"""

from __future__ import annotations

import wasmtime

from wasmline.wasm.abi import FUNCTIONS
from wasmline.wasm.shim import function_type

TIMESTAMP = 72
OFFSET = 80
SCRATCH = 4096
TEXTS = 8192
PAYLOAD = 65536

_IMPORTS = [
    (owner, name, function_type(kind)) for owner, names in FUNCTIONS.items() for name, kind in names.items() if kind
]
"""Every function that the host provides, so that any snippet may call any of them."""

_HEADER = (
    "(call $read_batch_header "
    + " ".join(f"(i32.const {cell})" for cell in (0, 8, 12, 16, 20, 24, 32, 40, 48, 52))
    + ")"
)
READ = (
    f"(call $read_next_record (i32.const 64) (i32.const {TIMESTAMP}) (i32.const {OFFSET})"
    f" (i32.const {PAYLOAD}) (local.get $room))"
)

# Snippets: WebAssembly statements.

WRITE = f"(drop (call $write_record (i32.const {PAYLOAD}) (local.get $size)))"
TRAP = "(unreachable)"
SPIN = "(loop $spin (br $spin))"
NEXT_BATCH = f"(drop {_HEADER})"


def leave(status: int) -> str:
    """Return a snippet: end with an exit status."""
    return f"(call $proc_exit (i32.const {status}))"


def store(position: int, data: bytes) -> str:
    """Return a snippet: store these bytes in the guest's memory."""
    return " ".join(
        f"(i32.store8 (i32.const {position + index}) (i32.const {byte}))" for index, byte in enumerate(data)
    )


def write_bytes(payload: bytes, *, expect: int | None = None) -> str:
    """Return a snippet: write these bytes as a record, and trap if the host answers anything but ``expect``."""
    call = f"(call $write_record (i32.const {SCRATCH}) (i32.const {len(payload)}))"
    return store(SCRATCH, payload) + (f"(drop {call})" if expect is None else require(call, expect))


def write_to(options: bytes, *, expect: int | None = None) -> str:
    """Return a snippet: write the record with these options, and trap if the host answers anything but ``expect``."""
    payload = f"(i32.const {PAYLOAD}) (local.get $size)"
    call = f"(call $write_record_with_options {payload} (i32.const {SCRATCH}) (i32.const {len(options)}))"
    return store(SCRATCH, options) + (f"(drop {call})" if expect is None else require(call, expect))


def require(call: str, expect: int) -> str:
    """Return a snippet: trap unless an expression has this value."""
    return f"(if (i32.ne {call} (i32.const {expect})) (then (unreachable)))"


def topic(name: str) -> bytes:
    """Return write options that name an output topic of less than 64 bytes."""
    return bytes((1, 2 * len(name))) + name.encode()


def log(text: str, descriptor: int = 2) -> str:
    """Return a snippet: write a text to stdout (1) or stderr (2), in two vectors."""
    data = text.encode()
    half = len(data) // 2
    vectors = b"".join(number.to_bytes(4, "little") for number in (TEXTS, half, TEXTS + half, len(data) - half))
    return (
        store(TEXTS, data)
        + store(SCRATCH, vectors)
        + f"(drop (call $fd_write (i32.const {descriptor})"
        + f" (i32.const {SCRATCH}) (i32.const 2) (i32.const {SCRATCH + 64})))"
    )


def when_key(letter: str, snippet: str) -> str:
    """Return a snippet that runs only for records whose (short) key begins with an ASCII letter."""
    has_key = f"(i32.ge_s (local.get $size) (i32.const 2)) (i32.gt_u (i32.load8_u (i32.const {PAYLOAD})) (i32.const 1))"
    first = f"(i32.eq (i32.load8_u (i32.const {PAYLOAD + 1})) (i32.const {ord(letter)}))"
    return f"(if (i32.and (i32.and {has_key}) {first}) (then {snippet}))"


def write_cells(*cells: int) -> str:
    """Return a snippet: write a record without key whose value is some 64-bit cells of the guest's memory."""
    size = 8 * len(cells)
    head = b"\x01" + (bytes([2 * size]) if size < 64 else bytes([2 * size % 128 | 128, 2 * size // 128]))
    value = SCRATCH + len(head)
    copies = "".join(
        f"(i64.store (i32.const {value + 8 * index}) (i64.load (i32.const {cell})))" for index, cell in enumerate(cells)
    )
    return (
        f"{store(SCRATCH, head)} {copies} (i32.store8 (i32.const {value + size}) (i32.const 0))"
        f"(drop (call $write_record (i32.const {SCRATCH}) (i32.const {len(head) + size + 1})))"
    )


def read_clock(clock: int, cell: int) -> str:
    """Return a snippet: read a WASI clock into a 64-bit cell."""
    return f"(drop (call $clock_time_get (i32.const {clock}) (i64.const 0) (i32.const {cell})))"


def guest(
    on_record: str = WRITE,
    *,
    abi: int = 1,
    on_start: str = "",
    on_batch: str = "",
    section: str = "",
    pages: str = "3",
    read: str = READ,
) -> bytes:
    """Return a module that runs ``on_start`` once, ``on_batch`` per batch and ``on_record`` per record.

    ``section`` is more module fields, such as a start section; ``pages`` is the memory's size, and its maximum if it
    has one.
    """
    imports = "\n".join(
        f'(import "{owner}" "{name}" (func ${name} {kind}))'
        for owner, name, kind in _IMPORTS
        if name != "write_record_with_options" or abi > 1
    )
    text = f"""(module
  (import "redpanda_transform" "check_abi_version_{abi}" (func $marker))
  {imports}
  (memory (export "memory") {pages})
  (global $heap (mut i32) (i32.const {PAYLOAD}))
  (func $recurse (local $a i64) (call $recurse) (call $recurse))
  {section}
  (func (export "_start") (local $size i32) (local $room i32) (local $zero i32)
    (call $marker)
    {on_start}
    (loop $batch
      (local.set $room {_HEADER})
      (call $make_room (local.get $room))
      {on_batch}
      (loop $record
        (local.set $size {read})
        (if (i32.ge_s (local.get $size) (i32.const 0)) (then
          {on_record}
          (br $record))))
      (br $batch)))
  ;; The payload's buffer is the end of the memory.
  (func $make_room (param $room i32) (local $have i32)
    (local.set $have (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const {PAYLOAD})))
    (if (i32.gt_u (local.get $room) (local.get $have)) (then
      (if (i32.lt_s (memory.grow (i32.add (i32.shr_u (i32.sub (local.get $room) (local.get $have)) (i32.const 16))
                                          (i32.const 1)))
                    (i32.const 0))
        (then (unreachable)))))))"""
    return bytes(wasmtime.wat2wasm(text))

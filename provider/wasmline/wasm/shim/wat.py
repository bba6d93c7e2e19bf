"""Generates WebAssembly text: access to cells of the control block, byte strings and varints.

Everything is expanded inline: a call costs an epoch check at the function's entry, and these are the hot paths.
``$own`` is the shim's memory, ``$guest`` the guest's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from wasmline.wasm.columns.control_block import CLOCKS, OFFSETS

INLINE_COPY_BYTES = 256
"""Longer copies use memory.copy, a call into the runtime: cheaper per byte, with a higher fixed cost."""

COPY_LOCALS = "(local $i i32)"
"""The scratch local of ``copy``."""

_TYPES = {"i": "i32", "I": "i64"}


def get(name: str) -> str:
    """Return an expression: the value of a cell."""
    kind = "i64" if name in CLOCKS.offsets else "i32"
    return f"({kind}.load $own offset={OFFSETS[name]} (i32.const 0))"


def put(name: str, value: str) -> str:
    """Return a statement: set a cell."""
    kind = "i64" if name in CLOCKS.offsets else "i32"
    return f"({kind}.store $own offset={OFFSETS[name]} (i32.const 0) {value})"


def bump(name: str, by: str = "(i32.const 1)") -> str:
    """Return a statement: increment a cell."""
    return put(name, f"(i32.add {get(name)} {by})")


def at(base: str, index: str, *, skip: int = 0) -> str:
    """Return an expression: element ``index + skip`` of an i32 array in the shim's memory."""
    return f"(i32.load $own offset={4 * skip} (i32.add {base} (i32.shl {index} (i32.const 2))))"


def put_at(base: str, index: str, value: str, *, skip: int = 0) -> str:
    """Return a statement: set element ``index + skip`` of an i32 array in the shim's memory."""
    return f"(i32.store $own offset={4 * skip} (i32.add {base} (i32.shl {index} (i32.const 2))) {value})"


def wide_at(base: str, index: str) -> str:
    """Return an expression: element ``index`` of an i64 array in the shim's memory."""
    return f"(i64.load $own (i32.add {base} (i32.shl {index} (i32.const 3))))"


def function_type(signature: str) -> str:
    """Return the parameters and results of a signature of the ABI table."""
    params, _, results = signature.partition(":")
    parts = [f"(param {' '.join(_TYPES[letter] for letter in params)})"] if params else []
    parts += [f"(result {' '.join(_TYPES[letter] for letter in results)})"] if results else []
    return " ".join(parts)


def call_through(table: str, names: Sequence[str], name: str, signature: str) -> str:
    """Return an expression: a function calls, with its own arguments, the table's entry for its name."""
    arguments = " ".join(f"(local.get {index})" for index in range(len(signature.partition(":")[0])))
    return f"(call_indirect {table} {function_type(signature)} {arguments} (i32.const {names.index(name)}))"


def is_valid(validity: str, bit: str, index: str) -> str:
    """Return an expression: 1 where Arrow's validity bitmap, 0 for none, has element ``index``."""
    position = f"(i32.add {bit} {index})"
    byte = f"(i32.load8_u $own (i32.add {validity} (i32.shr_u {position} (i32.const 3))))"
    marked = f"(i32.and (i32.shr_u {byte} (i32.and {position} (i32.const 7))) (i32.const 1))"
    return f"(if (result i32) {validity} (then {marked}) (else (i32.const 1)))"


def measure(column: str, index: str) -> str:
    """Return statements: $from and $len describe element ``index`` of an input column; $len is -1 for null."""
    offsets = get(f"{column}_offsets")
    validity = get(f"{column}_validity")
    return f"""
      (local.set $from {at(offsets, index)})
      (local.set $len (i32.sub {at(offsets, index, skip=1)} (local.get $from)))
      (if {validity} (then
        (if (i32.eqz {is_valid(validity, get(f"{column}_bit"), index)}) (then (local.set $len (i32.const -1))))))"""


def varint_size(value: str) -> str:
    """Return an expression: the size in bytes of a length of at least -1 as a zigzag varint."""
    steps = [f"(i32.ge_s {value} (i32.const {1 << (7 * size - 1)}))" for size in range(1, 5)]
    return f"(i32.add (i32.const 1) (i32.add (i32.add {steps[0]} {steps[1]}) (i32.add {steps[2]} {steps[3]})))"


def write_varint(value: str) -> str:
    """Return statements: write ``value`` to the guest at $to, and advance $to. One and two bytes are inline."""
    return f"""
      (local.set $code (i32.xor (i32.shl {value} (i32.const 1)) (i32.shr_s {value} (i32.const 31))))
      (if (i32.lt_u (local.get $code) (i32.const 128))
        (then
          (i32.store8 $guest (local.get $to) (local.get $code))
          (local.set $to (i32.add (local.get $to) (i32.const 1))))
        (else (if (i32.lt_u (local.get $code) (i32.const 16384))
          (then
            (i32.store16 $guest (local.get $to)
              (i32.or (i32.or (i32.and (local.get $code) (i32.const 127)) (i32.const 128))
                      (i32.shl (i32.shr_u (local.get $code) (i32.const 7)) (i32.const 8))))
            (local.set $to (i32.add (local.get $to) (i32.const 2))))
          (else (local.set $to (call $write_long_varint (local.get $to) (local.get $code)))))))"""


def read_varint(into: str) -> str:
    """Return statements: read the varint at $at, before $end, to a local and advance $at; -2 if it is not a length.

    One and two bytes are inline.
    """
    length = f"""
          (local.set {into}
            (i32.xor (i32.shr_u (local.get $code) (i32.const 1))
                     (i32.sub (i32.const 0) (i32.and (local.get $code) (i32.const 1)))))"""
    second = "(i32.load8_u $guest offset=1 (local.get $at))"
    return f"""
      (if (i32.ge_u (local.get $at) (local.get $end)) (then (br $malformed)))
      (local.set $code (i32.load8_u $guest (local.get $at)))
      (if (i32.lt_u (local.get $code) (i32.const 128))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          {length})
        (else (if (if (result i32) (i32.lt_u (i32.add (local.get $at) (i32.const 1)) (local.get $end))
                (then (i32.lt_u {second} (i32.const 128)))
                (else (i32.const 0)))
          (then
            (local.set $code
              (i32.or (i32.and (local.get $code) (i32.const 127)) (i32.shl {second} (i32.const 7))))
            (local.set $at (i32.add (local.get $at) (i32.const 2)))
            {length})
          (else
            (call $read_long_varint (local.get $at) (local.get $end))
            (local.set $at)
            (local.set {into})))))"""


def copy(to_memory: str, to: str, from_memory: str, start: str, length: str) -> str:
    """Return statements that copy ``length`` bytes, usually few: two overlapping moves are faster than a loop.

    The arguments are read many times, so they must be plain locals. Traps if either side exceeds its memory.
    """

    def move(kind: str, offset: str) -> str:
        load, store = {"byte": ("i32.load8_u", "i32.store8")}.get(kind, (f"{kind}.load", f"{kind}.store"))
        return f"({store} {to_memory} (i32.add {to} {offset}) ({load} {from_memory} (i32.add {start} {offset})))"

    def from_end(size: int) -> str:
        return f"(i32.sub {length} (i32.const {size}))"

    zero, middle = "(i32.const 0)", f"(i32.shr_u {length} (i32.const 1))"
    return f"""
      (if (i32.le_u {length} (i32.const 16))
        (then
          (if (i32.ge_u {length} (i32.const 8))
            (then {move("i64", zero)} {move("i64", from_end(8))})
            (else (if (i32.ge_u {length} (i32.const 4))
              (then {move("i32", zero)} {move("i32", from_end(4))})
              (else (if {length}
                (then {move("byte", zero)} {move("byte", middle)} {move("byte", from_end(1))})))))))
        (else (if (i32.le_u {length} (i32.const 32))
          (then {move("v128", zero)} {move("v128", from_end(16))})
          (else (if (i32.le_u {length} (i32.const {INLINE_COPY_BYTES}))
            (then
              (local.set $i (i32.const 0))
              (loop $stride
                {move("v128", "(local.get $i)")}
                {move("v128", "(i32.add (local.get $i) (i32.const 16))")}
                (local.set $i (i32.add (local.get $i) (i32.const 32)))
                (br_if $stride (i32.lt_u (local.get $i) {from_end(32)})))
              {move("v128", from_end(32))} {move("v128", from_end(16))})
            (else (memory.copy {to_memory} {from_memory} {to} {start} {length})))))))"""


def require_guest_range(start: str, length: str, *, element: int = 1) -> str:
    """Return statements that trap with "out of bounds memory access" unless the range lies in the guest's memory.

    ``length`` counts elements of ``element`` bytes.
    """
    return _trap_if(_is_outside(start, length, element))


def require_guest_ranges(*ranges: tuple[str, str | int]) -> str:
    """Return statements that trap unless ranges lie in the guest's memory, with one branch for all of them.

    A range is the local of its start, and the local of its length in bytes or that length itself.
    """
    outside = [
        _is_outside(
            f"(local.get {start})", f"(i32.const {length})" if isinstance(length, int) else f"(local.get {length})"
        )
        for start, length in ranges
    ]
    return _trap_if(functools.reduce("(i32.or {} {})".format, outside))


def _is_outside(start: str, length: str, element: int = 1) -> str:
    size = f"(i64.extend_i32_u {length})"
    if element > 1:
        size = f"(i64.mul {size} (i64.const {element}))"
    end = f"(i64.add (i64.extend_i32_u {start}) {size})"
    return f"(i64.gt_u {end} (i64.shl (i64.extend_i32_u (memory.size $guest)) (i64.const 16)))"


def _trap_if(condition: str) -> str:
    return f"""
      (if {condition}
        (then (drop (i32.load8_u $guest (i32.const -1))) (unreachable)))"""

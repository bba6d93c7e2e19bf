from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import wasmtime

from wasmline.wasm.binary.call_rewriting import rewrite_calls
from wasmline.wasm.binary.reader import CODE, PREAMBLE_BYTES, Reader, number, sections, vector
from wasmline.wasm.engine import new_engine

NO_LOCALS, ONE_LOCAL = b"\x00", b"\x01\x01\x7f"
UNREACHABLE, CALL_0, CALL_7, END = b"\x00", b"\x10\x00", b"\x10\x07", b"\x0b"
LONGEST = 17
"""Bytes that a vector's constant or a list of lanes takes, and one more."""
NESTED = b"\x02\x40" * 9 + END * 9 + UNREACHABLE
"""Blocks: valid code, but not if an instruction before takes any of its first bytes for an operand."""

MODULE = bytes(
    wasmtime.wat2wasm("""(module
      (type (func))
      (import "" "" (func (type 0)))
      (memory 1) (table 1 funcref) (global (mut i32) (i32.const 0)) (data "") (elem func 0)
      (func (data.drop 0)))""")
)


def redirected(code: bytes) -> bytes:
    """Return what becomes of code if function 7 is called instead of function 0."""
    return rewrite_calls(NO_LOCALS + code, {0: 7}).removeprefix(NO_LOCALS)


def is_taken(code: bytes) -> bool:
    """True if the runtime takes some code where any operand may be on the stack and what is left does not matter."""
    body = ONE_LOCAL + UNREACHABLE + code + NESTED + END
    content = sections(MODULE) | {CODE: number(1) + vector(body)}
    order = (1, 2, 3, 4, 5, 6, 9, 12, CODE, 11)
    module = MODULE[:PREAMBLE_BYTES] + b"".join(bytes([kind]) + vector(content[kind]) for kind in order)
    try:
        wasmtime.Module.validate(new_engine(), module)
    except wasmtime.WasmtimeError:
        return False
    return True


def instructions() -> Iterator[tuple[bytes, int]]:
    """Yield every instruction that the runtime takes with operands of zeros, and of how many."""
    codes = [bytes([code]) for code in range(256)]
    codes += [bytes([prefix]) + number(code) for prefix in (0xFB, 0xFC, 0xFD, 0xFE) for code in range(0x140)]
    for code in codes:
        for ends, operands in itertools.product((b"", END), range(LONGEST)):
            if is_taken(code + bytes(operands) + ends):
                yield code, operands
                break


def test_every_instruction_that_the_runtime_takes_is_read_with_its_operands() -> None:
    known = {code: operands for code, operands in instructions() if code not in (b"\x10", b"\x12")}
    assert len(known) > 440
    for code, operands in known.items():
        zeros = bytes(operands)
        assert redirected(code + zeros + CALL_0 + END) == code + zeros + CALL_7 + END, code
        if operands:  # one zero less, and the call's first byte is an operand
            cut = code + zeros[1:] + CALL_0 + END
            assert redirected(cut) == cut, code


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"\x41\x90\x80\x80\x80\x00", id="a long zero"),
        pytest.param(b"\x28\x02\x90\x00", id="a long offset"),
        pytest.param(b"\x28\x42\x00\x10\x00", id="a memory's number"),
        pytest.param(b"\x28\xc2\x00\x00\x10\x00", id="a memory's number after a long alignment"),
        pytest.param(b"\xfd\x54\x42\x00\x10\x00", id="a lane of a numbered memory"),
        pytest.param(b"\x0e\x03\x10\x00\x90\x00\x10", id="a table of branches"),
        pytest.param(b"\x1c\x01\x7f", id="a typed choice"),
        pytest.param(b"\x44" + CALL_0 * 4, id="a number like four calls"),
        pytest.param(b"\x43\n\n\n\n", id="a number of line feeds"),
        pytest.param(b"\xfd\x0c" + CALL_0 * 8, id="a vector like eight calls"),
        pytest.param(b"\x10\x01", id="a call of another function"),
        pytest.param(b"\x11\x10\x00", id="an indirect call"),
    ],
)
def test_what_looks_like_a_call_in_an_operand_stays(before: bytes) -> None:
    assert redirected(before + CALL_0 + END) == before + CALL_7 + END


@pytest.mark.parametrize("callee", [b"\x00", b"\x80\x00", b"\x80\x80\x80\x80\x00"])
@pytest.mark.parametrize("call", [b"\x10", b"\x12"], ids=["call", "tail call"])
def test_a_number_of_any_length_names_the_function(call: bytes, callee: bytes) -> None:
    assert redirected(call + callee + END) == call + b"\x07" + END


def test_the_types_of_locals_are_no_instructions() -> None:
    body = b"\x02\x10\x7f\x90\x00\x7e" + CALL_0 + END
    assert rewrite_calls(body, {0: 300}) == body.replace(CALL_0, b"\x10" + number(300))


def test_code_with_an_unknown_instruction_stays() -> None:
    body = CALL_0 + b"\xff" + CALL_0 + END
    assert redirected(body) == body


def test_numbers_are_written_as_they_are_read() -> None:
    for value in (0, 1, 127, 128, 16_383, 16_384, 2**32 - 1):
        assert Reader(number(value)).number() == value

"""What a host reads back of a store in which a guest wrote what it cannot write: never more than an error."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from wasmline.errors import InstanceClosed, SandboxViolation
from wasmline.testing import guests
from wasmline.wasm.columns.control_block import OUTPUT, WRITTEN
from wasmline.wasm.columns.shim_memory import ShimMemory
from wasmline.wasm.guest import Guest

Corruption = Callable[[ShimMemory], None]

NULL_VALUE = bytes([2, 97, 1, 0])
"""A record with a key and no value, and no headers."""
HEADER = bytes([1, 1, 2, 2, 97, 2, 98])
"""A record of one header."""
MODULE = guests.guest(
    guests.WRITE + guests.write_bytes(NULL_VALUE) + guests.write_bytes(HEADER) + guests.log("a line"), abi=2
)


def cell(name: str, value: int) -> Corruption:
    return lambda memory: memory.put(**{name: value})


def element(column: str, index: int, value: int) -> Corruption:
    """Set one 32-bit number of an array to which a cell points."""

    def corrupt(memory: ShimMemory) -> None:
        at = memory.address + memory.get(column) + 4 * index
        ctypes.c_uint32.from_address(at).value = value

    return corrupt


LARGE = 0xF000_0000
CORRUPTIONS = {
    **{f"{name} is large": cell(name, LARGE) for name in (*OUTPUT.names, *WRITTEN.names, "delivered", "log_bytes")},
    **{f"{name} is 0": cell(name, 0) for name in OUTPUT.names},
    **{f"there are {count} nulls of the values": cell("out_value_nulls", count) for count in (1, 3)},
    **{f"{name} fall": element(name, 1, LARGE) for name in OUTPUT.names if name.endswith("_offsets")},
    **{f"{name} begin late": element(name, 0, 1) for name in OUTPUT.names if name.endswith("_offsets")},
    **{f"{name} are not in order": element(name, 1, 99) for name in OUTPUT.names if name.endswith("_offsets")},
    "the end of the values is early": cell("out_value_bytes", 1),
    "a row is of an earlier batch": element("row_index", 0, 0xFFFF_FFFF),
    "a row is of a later batch": element("row_index", 5, 2),
    "rows are out of order": element("row_index", 0, 1),
    "an output is for no topic": element("topic_index", 3, 2),
    "an output is for a topic before the first": element("topic_index", 3, 0xFFFF_FFFF),
    "a log line is for a row beyond the batch": element("log", 0, 2),
    "a log line is longer than the log": element("log", 2, 7),
    "a log line is cut short": cell("log_bytes", 13),
}


@pytest.mark.parametrize("what", CORRUPTIONS)
def test_a_store_that_holds_what_no_guest_can_write_ends_its_instance(
    start: Any, records: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    hand_over = Guest._let_run

    def hand_over_and_corrupt(guest: Guest) -> None:
        hand_over(guest)
        CORRUPTIONS[what](guest._memory)

    instance = start(MODULE, outputs=("out", "rest"))
    batch = records([b"a", b"b"])
    assert instance.transform(batch).outputs.num_rows == 6
    with monkeypatch.context() as patched:
        patched.setattr(Guest, "_let_run", hand_over_and_corrupt)
        with pytest.raises(SandboxViolation):
            instance.transform(batch)
    with pytest.raises(InstanceClosed):
        instance.transform(batch)


def test_a_refused_record_beyond_the_batch_ends_the_instance(
    start: Any, records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over = Guest._let_run

    def hand_over_and_corrupt(guest: Guest) -> None:
        hand_over(guest)
        cell("refused", 3)(guest._memory)

    instance = start(guests.guest(guests.when_key("p", guests.TRAP)))
    monkeypatch.setattr(Guest, "_let_run", hand_over_and_corrupt)
    with pytest.raises(SandboxViolation):
        instance.transform(records([b"a", b"p"]))


@pytest.mark.parametrize("what", ["rows", "out_value_data", "row"])
def test_a_store_is_looked_at_when_its_columns_are_full(
    start: Any, records: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    collect = Guest._flush

    def corrupt_and_collect(guest: Guest, need: int) -> int:
        cell(what, LARGE)(guest._memory)
        return collect(guest, need)

    monkeypatch.setattr(Guest, "_flush", corrupt_and_collect)
    instance = start(guests.guest(guests.WRITE * 40))
    with pytest.raises(SandboxViolation):
        instance.transform(records([b"a"], values=[bytes(64 * 1024)]))

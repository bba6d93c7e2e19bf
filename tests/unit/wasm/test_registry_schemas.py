"""The schema registry as a guest finds it: not enabled, or a fixed set of schemas."""

from __future__ import annotations

from typing import Any

import pytest

from wasmline.errors import InvalidSpec, LimitExceeded
from wasmline.testing import guests
from wasmline.wasm import Schema, TransformContext
from wasmline.wasm.abi import FUNCTIONS, SCHEMA_REGISTRY

AVRO = '{"type": "string", "doc": "é"}'
LONG = "message M { // " + "x" * 9000 + "\n}"
SCHEMAS = (
    Schema(id=7, definition=AVRO, format="avro"),
    Schema(id=300, definition=LONG, format="protobuf", subject="orders-value", version=2),
    Schema(id=8, definition='"one"', format="json", subject="orders-value", version=1),
    Schema(id=9, definition='"ten"', format="json", subject="orders-value", version=10),
    Schema(id=9, definition='"ten"', format="json", subject="orders-key"),
)

NAME, BLOB, TO, CELL = 2048, 3072, 16384, 1024
NOT_ENABLED, FAILED = -1, -2


def zigzag(number: int) -> bytes:
    """Return a number as the ABI writes it, computed the slow way."""
    code, out = 2 * number if number >= 0 else -2 * number - 1, []
    while True:
        code, low = divmod(code, 128)
        out.append(low | (128 if code else 0))
        if not code:
            return bytes(out)


def definition(kind: int, text: str) -> bytes:
    return zigzag(kind) + zigzag(len(text.encode())) + text.encode() + zigzag(0)


def subject(name: str) -> str:
    return f"(i32.const {NAME}) (i32.const {len(name.encode())})"


def emit(start: int, size: int) -> str:
    """Write a record whose value is some bytes of the guest's memory."""
    head = b"\x01" + zigzag(size)
    at = start - len(head)
    ends = guests.store(at, head) + guests.store(start + size, b"\0")
    return ends + f"(drop (call $write_record (i32.const {at}) (i32.const {len(head) + size + 1})))"


def look_up(length: str, getter: str, size: int) -> str:
    """Ask for a length, expect it, ask for the thing with exactly that room, and write it as a record."""
    return (
        guests.require(length, 0)
        + guests.require(f"(i32.load (i32.const {CELL}))", size)
        + guests.require(getter.format(room=size - 1), FAILED)
        + guests.require(getter.format(room=size + 100), size)
        + guests.require(getter.format(room=size), size)
        + emit(TO, size)
    )


def by_id(number: int, size: int) -> str:
    return look_up(
        f"(call $get_schema_definition_len (i32.const {number}) (i32.const {CELL}))",
        f"(call $get_schema_definition (i32.const {number}) (i32.const {TO}) (i32.const {{room}}))",
        size,
    )


def by_subject(name: str, version: int, size: int) -> str:
    where = f"{subject(name)} (i32.const {version})"
    return guests.store(NAME, name.encode()) + look_up(
        f"(call $get_subject_schema_len {where} (i32.const {CELL}))",
        f"(call $get_subject_schema {where} (i32.const {TO}) (i32.const {{room}}))",
        size,
    )


def told(start: Any, records: Any, body: str, schemas: tuple[Schema, ...] = SCHEMAS) -> list[bytes]:
    result = start(guests.guest(body), schemas=schemas).transform(records([b"k"]))
    assert result.failures == ()
    values: list[bytes] = result.outputs.column("value").to_pylist()
    return values


@pytest.mark.parametrize(
    ("number", "blob"),
    [(7, definition(0, AVRO)), (300, definition(1, LONG)), (8, definition(2, '"one"')), (9, definition(2, '"ten"'))],
)
def test_a_schema_is_found_by_its_id(start: Any, records: Any, number: int, blob: bytes) -> None:
    assert told(start, records, by_id(number, len(blob))) == [blob]


@pytest.mark.parametrize(
    ("name", "asked", "blob"),
    [
        ("orders-value", 1, zigzag(8) + zigzag(1) + definition(2, '"one"')),
        ("orders-value", 2, zigzag(300) + zigzag(2) + definition(1, LONG)),
        ("orders-value", -1, zigzag(9) + zigzag(10) + definition(2, '"ten"')),
        ("orders-key", -1, zigzag(9) + zigzag(1) + definition(2, '"ten"')),
    ],
)
def test_a_schema_is_found_by_its_subject_and_version_or_the_latest(
    start: Any, records: Any, name: str, asked: int, blob: bytes
) -> None:
    assert told(start, records, by_subject(name, asked, len(blob))) == [blob]


def every_call(number: int, name: str, version: int, blob: bytes) -> dict[str, str]:
    where = f"{subject(name)} (i32.const {version})"
    return {
        "get_schema_definition_len": f"(i32.const {number}) (i32.const {CELL})",
        "get_schema_definition": f"(i32.const {number}) (i32.const {TO}) (i32.const 32768)",
        "get_subject_schema_len": f"{where} (i32.const {CELL})",
        "get_subject_schema": f"{where} (i32.const {TO}) (i32.const 32768)",
        "create_subject_schema": f"{subject(name)} (i32.const {BLOB}) (i32.const {len(blob)}) (i32.const {CELL})",
    }


def answers(name: str, blob: bytes, calls: dict[str, str], expect: int) -> str:
    assert set(calls) == {name for name, kind in FUNCTIONS[SCHEMA_REGISTRY].items() if kind}
    stores = guests.store(NAME, name.encode()) + guests.store(BLOB, blob)
    untouched = f"(i32.store (i32.const {CELL}) (i32.const 77)) (i32.store (i32.const {TO}) (i32.const 77))"
    checks = guests.require(f"(i32.load (i32.const {CELL}))", 77) + guests.require(f"(i32.load (i32.const {TO}))", 77)
    body = "".join(guests.require(f"(call ${call} {values})", expect) for call, values in calls.items())
    return stores + untouched + body + checks


def test_without_schemas_the_registry_is_not_enabled(start: Any, records: Any) -> None:
    blob = definition(0, AVRO)
    body = answers("orders-value", blob, every_call(7, "orders-value", -1, blob), NOT_ENABLED)
    assert told(start, records, body, schemas=()) == []


@pytest.mark.parametrize(
    ("number", "name", "version", "blob"),
    [
        (6, "orders", -1, definition(0, AVRO)),
        (-1, "orders-valuf", -1, definition(2, '"other"')),
        (2**31 - 1, "orders-value", 3, definition(2, '"new"')),
        (0, "orders-value", -2, b""),
        (10, "orders-value", 0, b"\xff\xff"),
        (10, "", -1, definition(0, AVRO)),
    ],
)
def test_what_is_not_in_the_set_is_an_error(
    start: Any, records: Any, number: int, name: str, version: int, blob: bytes
) -> None:
    body = answers(name, blob, every_call(number, name, version, blob), FAILED)
    assert told(start, records, body) == []


def test_registering_what_is_there_gives_its_id_and_anything_else_fails(start: Any, records: Any) -> None:
    def create(name: str, blob: bytes, expect: int) -> str:
        stores = guests.store(NAME, name.encode()) + guests.store(BLOB, blob)
        place = f"{subject(name)} (i32.const {BLOB}) (i32.const {len(blob)}) (i32.const {CELL})"
        return stores + guests.require(f"(call $create_subject_schema {place})", expect)

    one = definition(2, '"one"')
    body = (
        create("orders-value", one, 0)
        + guests.require(f"(i32.load (i32.const {CELL}))", 8)
        + create("orders-key", one, FAILED)
        + create("orders-value", definition(0, '"one"'), FAILED)
        + create("orders-value", one[:-1], FAILED)
    )
    assert told(start, records, body) == []


@pytest.mark.parametrize("schemas", [(), SCHEMAS])
@pytest.mark.parametrize(
    "call",
    [
        "$get_schema_definition_len (i32.const 7) (i32.const -3)",
        "$get_schema_definition (i32.const 7) (i32.const -1) (i32.const 2)",
        "$get_schema_definition (i32.const 7) (i32.const 0) (i32.const -1)",
        "$get_subject_schema_len (i32.const -1) (i32.const 2) (i32.const -1) (i32.const 0)",
        "$get_subject_schema_len (i32.const 0) (i32.const 2) (i32.const -1) (i32.const -3)",
        "$get_subject_schema (i32.const -1) (i32.const 2) (i32.const -1) (i32.const 0) (i32.const 8)",
        "$get_subject_schema (i32.const 0) (i32.const 2) (i32.const -1) (i32.const -1) (i32.const 8)",
        "$create_subject_schema (i32.const -1) (i32.const 2) (i32.const 0) (i32.const 8) (i32.const 0)",
        "$create_subject_schema (i32.const 0) (i32.const 2) (i32.const -1) (i32.const 8) (i32.const 0)",
        "$create_subject_schema (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 8) (i32.const -3)",
    ],
)
def test_a_wild_pointer_traps_whether_the_registry_is_enabled_or_not(
    start: Any, records: Any, schemas: tuple[Schema, ...], call: str
) -> None:
    body = guests.when_key("p", f"(drop (call {call}))") + guests.WRITE
    result = start(guests.guest(body), schemas=schemas).transform(records([b"k", b"p", b"k"]))
    assert [(failure.row, failure.error.code) for failure in result.failures] == [(1, "out of bounds memory access")]


def test_a_thousand_schemas_are_found(start: Any, records: Any) -> None:
    schemas = tuple(Schema(id=row, definition=f"{row}", format="json", subject=f"s{row}") for row in range(1000))
    blobs = {number: definition(2, f"{number}") for number in (0, 1, 500, 999)}
    body = "".join(by_id(number, len(blob)) for number, blob in blobs.items())
    assert told(start, records, body, schemas) == list(blobs.values())


def context(*schemas: Schema) -> TransformContext:
    return TransformContext(name="t", input_topic="in", output_topics=("out",), schemas=schemas)


@pytest.mark.parametrize(
    "change", [{"id": -1}, {"id": 2**31}, {"version": 0}, {"version": 2**31}, {"format": "xml"}, {"subject": ""}]
)
def test_a_schema_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        Schema(**{"id": 1, "definition": "{}", "format": "json", **change})


def test_schemas_that_contradict_each_other_are_refused() -> None:
    one = Schema(id=1, definition="1", format="json", subject="s")
    with pytest.raises(InvalidSpec, match="schema id 1"):
        context(one, Schema(id=1, definition="2", format="json"))
    with pytest.raises(InvalidSpec, match="version 1 of subject s"):
        context(one, Schema(id=2, definition="2", format="json", subject="s"))
    context(one, Schema(id=1, definition="1", format="json", subject="s", version=2))


def test_too_many_schemas_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="1001 schemas"):
        context(*(Schema(id=row, definition="1", format="json") for row in range(1001)))
    with pytest.raises(LimitExceeded, match="bytes"):
        context(Schema(id=1, definition="1" * 2**24, format="json"))

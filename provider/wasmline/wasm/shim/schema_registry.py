"""The schema registry inside the shim: lookups in the fixed set of schemas, or "not enabled".

Blobs and answers are those of Redpanda's transform SDKs. Nothing can be registered; registering a definition that the
subject already has returns its id, as in a registry.
"""

from __future__ import annotations

from wasmline.wasm.abi import FUNCTIONS, SCHEMA_REGISTRY
from wasmline.wasm.registry_schemas import ROW
from wasmline.wasm.shim.wat import get, require_guest_range

NOT_ENABLED = -1
FAILED = -2
LATEST = -1

LOOKUPS = tuple(name for name, kind in FUNCTIONS[SCHEMA_REGISTRY].items() if kind)

_FIELDS = ("id", "version", "subject", "subject_size", "answer", "answer_size", "content", "content_size")
_SUBJECT = "(param $subject i32) (param $subject_size i32)"
_BUFFER = "(param $to i32) (param $capacity i32)"
_NEXT_ROW = f"(local.set $row (i32.add (local.get $row) (i32.const {ROW.size})))"


def schema_registry() -> str:
    """Return the functions of ``redpanda_schema_registry`` as WebAssembly text."""
    by_id = "(call $find_schema (local.get $id))"
    by_subject = "(call $find_subject (local.get $subject) (local.get $subject_size) (local.get $version))"
    subject = _require("$subject", "$subject_size")
    return f"""
  {_same()}
  {_find_schema()}
  {_find_subject()}
  (func $get_schema_definition_len (param $id i32) (param $size i32) (result i32) (local $row i32)
    {_measure("", by_id, "content")})
  (func $get_schema_definition (param $id i32) {_BUFFER} (result i32) (local $row i32)
    {_answer("", by_id, "content")})
  (func $get_subject_schema_len {_SUBJECT} (param $version i32) (param $size i32) (result i32) (local $row i32)
    {_measure(subject, by_subject, "answer")})
  (func $get_subject_schema {_SUBJECT} (param $version i32) {_BUFFER} (result i32) (local $row i32)
    {_answer(subject, by_subject, "answer")})
  {_create_subject_schema()}"""


def _field(name: str) -> str:
    return f"(i32.load $own offset={4 * _FIELDS.index(name)} (local.get $row))"


def _require(start: str, length: str) -> str:
    return require_guest_range(f"(local.get {start})", f"(local.get {length})")


def _require_enabled() -> str:
    return f"(if (i32.eqz {get('schema_count')}) (then (return (i32.const {NOT_ENABLED}))))"


def _rows(count: str, body: str, otherwise: int) -> str:
    """Return statements: ``body`` for the first rows, with $row at each, then the result if no row returned."""
    return f"""
    (local.set $row {get("schemas")})
    (local.set $end (i32.add (local.get $row) (i32.mul {get(count)} (i32.const {ROW.size}))))
    (loop $next
      (if (i32.lt_u (local.get $row) (local.get $end)) (then
        {body}
        {_NEXT_ROW}
        (br $next))))
    (i32.const {otherwise})"""


def _same() -> str:
    return """
  (func $same (param $own_at i32) (param $guest_at i32) (param $left i32) (result i32)
    (loop $next
      (if (i32.eqz (local.get $left)) (then (return (i32.const 1))))
      (if (i32.ne (i32.load8_u $own (local.get $own_at)) (i32.load8_u $guest (local.get $guest_at)))
        (then (return (i32.const 0))))
      (local.set $own_at (i32.add (local.get $own_at) (i32.const 1)))
      (local.set $guest_at (i32.add (local.get $guest_at) (i32.const 1)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $next))
    (unreachable))"""


def _is(name: str, start: str, size: str) -> str:
    """Return an expression: 1 if the guest's bytes equal those that the row points to."""
    equal = f"(call $same {_field(name)} (local.get {start}) (local.get {size}))"
    sizes = f"(i32.eq {_field(f'{name}_size')} (local.get {size}))"
    return f"(if (result i32) {sizes} (then {equal}) (else (i32.const 0)))"


def _find_schema() -> str:
    """Return the row of an id, 0 for none: no row is at 0."""
    found = f"(if (i32.eq {_field('id')} (local.get $id)) (then (return (local.get $row))))"
    return f"""
  (func $find_schema (param $id i32) (result i32) (local $row i32) (local $end i32)
    {_rows("schema_count", found, 0)})"""


def _find_subject() -> str:
    """Return the row of a subject's version, 0 for none. The latest version is the first row of its subject."""
    wanted = f"(i32.eq (local.get $version) (i32.const {LATEST})) (i32.eq {_field('version')} (local.get $version))"
    found = f"""
        (if (i32.or {wanted}) (then
          (if {_is("subject", "$subject", "$subject_size")} (then (return (local.get $row))))))"""
    return f"""
  (func $find_subject {_SUBJECT} (param $version i32) (result i32) (local $row i32) (local $end i32)
    {_rows("subject_count", found, 0)})"""


def _find(find: str) -> str:
    return f"""
    {_require_enabled()}
    (local.set $row {find})
    (if (i32.eqz (local.get $row)) (then (return (i32.const {FAILED}))))"""


def _measure(ranges: str, find: str, part: str) -> str:
    return f"""
    {ranges}
    {require_guest_range("(local.get $size)", "(i32.const 4)")}
    {_find(find)}
    (i32.store $guest (local.get $size) {_field(f"{part}_size")})
    (i32.const 0)"""


def _answer(ranges: str, find: str, part: str) -> str:
    size = _field(f"{part}_size")
    return f"""
    {ranges}
    {_require("$to", "$capacity")}
    {_find(find)}
    (if (i32.gt_u {size} (local.get $capacity)) (then (return (i32.const {FAILED}))))
    (memory.copy $guest $own (local.get $to) {_field(part)} {size})
    {size}"""


def _create_subject_schema() -> str:
    found = f"""
        (if {_is("subject", "$subject", "$subject_size")} (then
          (if {_is("content", "$from", "$size")} (then
            (i32.store $guest (local.get $id) {_field("id")})
            (return (i32.const 0))))))"""
    return f"""
  (func $create_subject_schema {_SUBJECT} (param $from i32) (param $size i32) (param $id i32) (result i32)
    (local $row i32) (local $end i32)
    {_require("$subject", "$subject_size")}
    {_require("$from", "$size")}
    {require_guest_range("(local.get $id)", "(i32.const 4)")}
    {_require_enabled()}
    {_rows("subject_count", found, FAILED)})"""

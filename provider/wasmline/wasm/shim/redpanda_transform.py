"""The functions of Redpanda's transform ABI, between Arrow columns in the shim's memory and the guest's memory.

Payloads are those of the public transform SDKs: a Kafka v2 record body from the key on, with zigzag varints.
"""

from __future__ import annotations

from wasmline.wasm.abi import FUNCTIONS, TRANSFORM
from wasmline.wasm.columns.control_block import ENDING_HOST, ENDING_OUTPUT
from wasmline.wasm.resource_limits import OUTPUT_OVERHEAD_BYTES
from wasmline.wasm.shim.wat import (
    COPY_LOCALS,
    at,
    bump,
    copy,
    function_type,
    get,
    is_valid,
    measure,
    put,
    put_at,
    read_varint,
    require_guest_ranges,
    varint_size,
    wide_at,
    write_varint,
)

NO_BATCH = -1
BAD_BUFFER = -2
BAD_TOPIC = -3

UNFIT_KEY = 0xFF
"""Represents a null header key, which Kafka does not support: not a UTF-8 byte, so one check finds both."""


def record_functions() -> str:
    """Return the functions that a guest calls for every record, in the order of DIRECT."""
    return f"""
  {_read_next_record()}
  {_write("write_record", "")}
  {_write("write_record_with_options", _choose_topic())}"""


def batch_functions() -> str:
    """Return the functions that a guest calls once per batch, and those that both kinds share."""
    return f"""
  {_write_long_varint()}
  {_read_long_varint()}
  {_measure_batch()}
  {_read_batch_header()}"""


def _stop(ending: int) -> str:
    """Return statements that end the guest with a reason for the host."""
    return f"{put('ending', f'(i32.const {ending})')} (unreachable)"


def _write_long_varint() -> str:
    return """
  (func $write_long_varint (param $to i32) (param $code i32) (result i32)
    (loop $more
      (i32.store8 $guest (local.get $to) (i32.or (i32.and (local.get $code) (i32.const 127)) (i32.const 128)))
      (local.set $code (i32.shr_u (local.get $code) (i32.const 7)))
      (local.set $to (i32.add (local.get $to) (i32.const 1)))
      (br_if $more (i32.ge_u (local.get $code) (i32.const 128))))
    (i32.store8 $guest (local.get $to) (local.get $code))
    (i32.add (local.get $to) (i32.const 1)))"""


def _read_long_varint() -> str:
    """As lenient as Redpanda's decoder: ten bytes at most, over-long encodings allowed. -2 for an invalid length."""
    return """
  (func $read_long_varint (param $at i32) (param $end i32) (result i32 i32)
    (local $byte i64) (local $code i64) (local $shift i64)
    (loop $more
      (if (i32.ge_u (local.get $at) (local.get $end)) (then (return (i32.const -2) (local.get $at))))
      (local.set $byte (i64.load8_u $guest (local.get $at)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $code
        (i64.or (local.get $code) (i64.shl (i64.and (local.get $byte) (i64.const 127)) (local.get $shift))))
      (local.set $shift (i64.add (local.get $shift) (i64.const 7)))
      (br_if $more (i32.and (i64.ge_u (local.get $byte) (i64.const 128)) (i64.lt_u (local.get $shift) (i64.const 70)))))
    (local.set $code
      (i64.xor (i64.shr_u (local.get $code) (i64.const 1))
               (i64.sub (i64.const 0) (i64.and (local.get $code) (i64.const 1)))))
    (select (i32.wrap_i64 (local.get $code)) (i32.const -2)
      (i32.and (i64.ge_s (local.get $code) (i64.const -1)) (i64.le_s (local.get $code) (i64.const 0x7fffffff))))
    (local.get $at))"""


def _header_span(index: str) -> str:
    """Return statements: $header to $headers are the headers of a record; a null list has none."""
    valid = is_valid(get("headers_validity"), get("headers_bit"), index)
    return f"""
      (local.set $header {at(get("headers_offsets"), index)})
      (local.set $headers {at(get("headers_offsets"), index, skip=1)})
      (if (i32.eqz {valid}) (then (local.set $headers (local.get $header))))"""


def _each_header(body: str) -> str:
    return f"""
      (block $done (loop $next
        (br_if $done (i32.ge_u (local.get $header) (local.get $headers)))
        {body}
        (local.set $header (i32.add (local.get $header) (i32.const 1)))
        (br $next)))"""


def _measure_batch() -> str:
    """Per batch: the payload size of every record, and the largest, which determines the guest's buffer size."""

    def grow(column: str, index: str) -> str:
        length = "(select (local.get $len) (i32.const 0) (i32.gt_s (local.get $len) (i32.const 0)))"
        grown = f"(i32.add (local.get $size) (i32.add {varint_size('(local.get $len)')} {length}))"
        return f"{measure(column, index)} (local.set $size {grown})"

    return f"""
  (func $measure_batch
    (local $index i32) (local $records i32) (local $size i32) (local $max i32)
    (local $from i32) (local $len i32) (local $header i32) (local $headers i32)
    (local.set $records {get("records")})
    (loop $record
      (local.set $size (i32.const 1))
      {grow("key", "(local.get $index)")}
      {grow("value", "(local.get $index)")}
      (if {get("headers_offsets")} (then
        {_header_span("(local.get $index)")}
        (local.set $size (i32.add (local.get $size)
          (i32.sub {varint_size("(i32.sub (local.get $headers) (local.get $header))")} (i32.const 1))))
        {_each_header(grow("header_key", "(local.get $header)") + grow("header_value", "(local.get $header)"))}))
      {put_at(get("sizes"), "(local.get $index)", "(local.get $size)")}
      (local.set $max (select (local.get $size) (local.get $max) (i32.gt_u (local.get $size) (local.get $max))))
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (br_if $record (i32.lt_u (local.get $index) (local.get $records))))
    {put("max_record", "(local.get $max)")})"""


HEADER_BYTES = (8, 4, 4, 2, 4, 8, 8, 8, 2, 4)
"""Sizes in bytes of the ten targets of pointers to a batch's header."""


def _read_batch_header() -> str:
    """Wait for a batch and describe it. The producer's fields are those of a batch without a producer id: all -1.

    Pointers are checked before the wait: a guest with an invalid one fails at its start, not its records.
    """
    last = "(i32.sub (local.get $records) (i32.const 1))"
    first_offset = wide_at(get("record_offsets"), "(i32.const 0)")
    last_offset = wide_at(get("record_offsets"), last)
    return f"""
  (func $read_batch_header {function_type(FUNCTIONS[TRANSFORM]["read_batch_header"])}
    (local $records i32) (local $index i32) (local $time i64) (local $max i64)
    {require_guest_ranges(*((str(number), size) for number, size in enumerate(HEADER_BYTES)))}
    {bump("progress")}
    (if (i32.eqz (call $next_batch)) (then {_stop(ENDING_HOST)}))
    {bump("progress")}
    (call $measure_batch)
    {put("active", "(i32.const 1)")}
    {put("output_bytes", "(i32.const 0)")}
    {put("stderr_bytes", "(i32.const 0)")}
    {put("stderr_torn", "(i32.const 0)")}
    (local.set $records {get("records")})
    (local.set $time {wide_at(get("timestamps"), "(i32.const 0)")})
    {put("wall_ms", "(local.get $time)")}
    (i64.store $guest (local.get 5) (local.get $time))
    (local.set $max (local.get $time))
    (loop $record
      (local.set $time {wide_at(get("timestamps"), "(local.get $index)")})
      (local.set $max (select (local.get $time) (local.get $max) (i64.gt_s (local.get $time) (local.get $max))))
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (br_if $record (i32.lt_u (local.get $index) (local.get $records))))
    (i64.store $guest (local.get 0) {first_offset})
    (i32.store $guest (local.get 1) (local.get $records))
    (i32.store $guest (local.get 2) (i32.const 0))
    (i32.store16 $guest (local.get 3) (i32.const 0))
    (i32.store $guest (local.get 4) (i32.wrap_i64 (i64.sub {last_offset} {first_offset})))
    (i64.store $guest (local.get 6) (local.get $max))
    (i64.store $guest (local.get 7) (i64.const -1))
    (i32.store16 $guest (local.get 8) (i32.const -1))
    (i32.store $guest (local.get 9) (i32.const -1))
    {get("max_record")})"""


def _read_next_record() -> str:
    """Encode the next record into the guest's buffer. It counts as delivered only when it is complete.

    The three pointers are checked by the stores to them if there is a record, and otherwise, which is rare, by a
    separate check: in both cases nothing has changed when one traps.
    """
    pointers = require_guest_ranges(("$attributes", 1), ("$timestamp", 8), ("$offset", 8))

    def field(column: str, index: str) -> str:
        return f"""
      {measure(column, index)}
      {write_varint("(local.get $len)")}
      (if (i32.gt_s (local.get $len) (i32.const 0)) (then
        (local.set $from (i32.add {get(f"{column}_data")} (local.get $from)))
        {copy("$guest", "(local.get $to)", "$own", "(local.get $from)", "(local.get $len)")}
        (local.set $to (i32.add (local.get $to) (local.get $len)))))"""

    return f"""
  (func $read_next_record
    (param $attributes i32) (param $timestamp i32) (param $offset i32) (param $to i32) (param $capacity i32)
    (result i32)
    (local $index i32) (local $size i32) (local $from i32) (local $len i32) (local $code i32)
    (local $header i32) (local $headers i32) (local $time i64) {COPY_LOCALS}
    {require_guest_ranges(("$to", "$capacity"))}
    (local.set $index {get("delivered")})
    (if (i32.or (i32.eqz {get("active")}) (i32.ge_u (local.get $index) {get("records")})) (then
      {pointers}
      (return (i32.const {NO_BATCH}))))
    (local.set $size {at(get("sizes"), "(local.get $index)")})
    (if (i32.lt_u (local.get $capacity) (local.get $size)) (then
      {pointers}
      {put("refused", "(i32.add (local.get $index) (i32.const 1))")}
      (return (i32.const {BAD_BUFFER}))))
    (local.set $time {wide_at(get("timestamps"), "(local.get $index)")})
    (i32.store8 $guest (local.get $attributes) (i32.const 0))
    (i64.store $guest (local.get $timestamp) (local.get $time))
    (i64.store $guest (local.get $offset) {wide_at(get("record_offsets"), "(local.get $index)")})
    {field("key", "(local.get $index)")}
    {field("value", "(local.get $index)")}
    (if {get("headers_offsets")}
      (then
        {_header_span("(local.get $index)")}
        {write_varint("(i32.sub (local.get $headers) (local.get $header))")}
        {_each_header(field("header_key", "(local.get $header)") + field("header_value", "(local.get $header)"))})
      (else (i32.store8 $guest (local.get $to) (i32.const 0))))
    {put("wall_ms", "(local.get $time)")}
    {put("monotonic_ns", f"(i64.add {get('monotonic_ns')} (i64.const 1000000))")}
    {put("row", f"(i32.add {get('row_base')} (local.get $index))")}
    {put("output_bytes", "(i32.const 0)")}
    {put("stderr_bytes", "(i32.const 0)")}
    {put("stderr_torn", "(i32.const 0)")}
    {put("delivered", "(i32.add (local.get $index) (i32.const 1))")}
    {bump("progress")}
    (local.get $size))"""


def _field_to_column(column: str, end: str, when_null: str, when_present: str = "") -> str:
    """Return statements that copy the next field of the payload to the end of an output column, not yet committed."""
    return f"""
      {read_varint("$len")}
      (br_if $malformed (i32.lt_s (local.get $len) (i32.const -1)))
      (if (i32.ge_s (local.get $len) (i32.const 0))
        (then
          (br_if $malformed (i32.gt_u (local.get $len) (i32.sub (local.get $end) (local.get $at))))
          (local.set $to (i32.add {get(f"{column}_data")} (local.get {end})))
          {copy("$own", "(local.get $to)", "$guest", "(local.get $at)", "(local.get $len)")}
          (local.set $at (i32.add (local.get $at) (local.get $len)))
          (local.set {end} (i32.add (local.get {end}) (local.get $len)))
          {when_present})
        (else {when_null}))"""


def _no_room(column: str) -> str:
    return f"(i32.gt_u (local.get $size) (i32.sub {get(f'{column}_capacity')} {get(f'{column}_bytes')}))"


def _flush_and_retry() -> str:
    """A payload is committed only after all of it is parsed, so parsing can restart after the columns are emptied."""
    return f"(if (call $flush (local.get $size)) (then {_stop(ENDING_HOST)})) (br $retry)"


def _header_to_columns() -> str:
    mark = "(i32.store8 $own (i32.add {} (local.get $header)) (i32.const {}))".format
    null_key = f"""
          (i32.store8 $own (i32.add {get("out_header_key_data")} (local.get $header_key_end)) (i32.const {UNFIT_KEY}))
          (local.set $header_key_end (i32.add (local.get $header_key_end) (i32.const 1)))"""
    null_value = f"""
          {mark(get("out_header_value_valid"), 0)}
          (local.set $header_nulls (i32.add (local.get $header_nulls) (i32.const 1)))"""
    return f"""
        {_field_to_column("out_header_key", "$header_key_end", null_key)}
        {_field_to_column("out_header_value", "$header_value_end", null_value, mark(get("out_header_value_valid"), 1))}
        {put_at(get("out_header_key_offsets"), "(local.get $header)", "(local.get $header_key_end)", skip=1)}
        {put_at(get("out_header_value_offsets"), "(local.get $header)", "(local.get $header_value_end)", skip=1)}
        (local.set $header (i32.add (local.get $header) (i32.const 1)))"""


def _headers_to_columns() -> str:
    room = f"(i32.sub {get('out_headers_capacity')} (local.get $header))"
    return f"""
      {read_varint("$len")}
      (br_if $malformed (i32.lt_s (local.get $len) (i32.const 0)))
      (local.set $header {get("out_headers")})
      (if (local.get $len) (then
        ;; A header takes two bytes at least, which bounds the count before it is trusted.
        (br_if $malformed
          (i32.gt_u (local.get $len) (i32.shr_u (i32.sub (local.get $end) (local.get $at)) (i32.const 1))))
        (if (i32.or (i32.gt_u (local.get $len) {room})
                    (i32.or {_no_room("out_header_key")} {_no_room("out_header_value")}))
          (then {_flush_and_retry()}))
        (local.set $cost
          (i64.add (local.get $cost) (i64.mul (i64.extend_i32_u (local.get $len)) (i64.const {OUTPUT_OVERHEAD_BYTES}))))
        {_stop_beyond_limit()}
        (local.set $headers (i32.add (local.get $header) (local.get $len)))
        (local.set $header_key_end {get("out_header_key_bytes")})
        (local.set $header_value_end {get("out_header_value_bytes")})
        (local.set $header_nulls {get("out_header_value_nulls")})
        (loop $next
          {_header_to_columns()}
          (br_if $next (i32.lt_u (local.get $header) (local.get $headers))))))
      (br_if $malformed (i32.ne (local.get $at) (local.get $end)))"""


def _choose_topic() -> str:
    """Return statements: $topic is the output named by the options, the first if they are empty."""
    candidate = "(i32.add {} (i32.shl (local.get $topic) (i32.const 3)))".format(get("topics"))
    return f"""
      (if (local.get $options_size) (then
        (local.set $at (local.get $options))
        (local.set $end (i32.add (local.get $at) (local.get $options_size)))
        (br_if $malformed (i32.ne (i32.load8_u $guest (local.get $at)) (i32.const 1)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        {read_varint("$len")}
        (br_if $malformed (i32.lt_s (local.get $len) (i32.const 0)))
        (if (i32.gt_u (local.get $len) (i32.sub (local.get $end) (local.get $at)))
          (then (drop (i32.load8_u $guest (i32.const -1))) (unreachable)))
        (br_if $malformed (i32.ne (local.get $len) (i32.sub (local.get $end) (local.get $at))))
        (local.set $topic (i32.const 0))
        (block $found (loop $candidate
          (if (i32.ge_u (local.get $topic) {get("topic_count")}) (then (return (i32.const {BAD_TOPIC}))))
          (block $different
            (br_if $different (i32.ne (local.get $len) (i32.load $own offset=4 {candidate})))
            (local.set $to (i32.load $own {candidate}))
            (local.set $i (i32.const 0))
            (loop $letter
              (br_if $found (i32.ge_u (local.get $i) (local.get $len)))
              (br_if $different (i32.ne (i32.load8_u $own (i32.add (local.get $to) (local.get $i)))
                                        (i32.load8_u $guest (i32.add (local.get $at) (local.get $i)))))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br $letter)))
          (local.set $topic (i32.add (local.get $topic) (i32.const 1)))
          (br $candidate)))))"""


def _commit() -> str:
    """Return statements that append the parsed payload as a row to the output columns."""
    row = "(local.get $row)"
    mark = "(i32.store8 $own (i32.add {} (local.get $row)) (i32.eqz (local.get {})))".format
    return f"""
      {bump("output_bytes", "(i32.wrap_i64 (local.get $cost))")}
      (if (i32.ne (local.get $header) {get("out_headers")}) (then
        {put("out_headers", "(local.get $header)")}
        {put("out_header_key_bytes", "(local.get $header_key_end)")}
        {put("out_header_value_bytes", "(local.get $header_value_end)")}
        {put("out_header_value_nulls", "(local.get $header_nulls)")}))
      {put("out_key_bytes", "(local.get $key_end)")}
      {put("out_value_bytes", "(local.get $value_end)")}
      {put_at(get("out_key_offsets"), row, "(local.get $key_end)", skip=1)}
      {put_at(get("out_value_offsets"), row, "(local.get $value_end)", skip=1)}
      {put_at(get("out_headers_offsets"), row, "(local.get $header)", skip=1)}
      {put_at(get("row_index"), row, get("row"))}
      {put_at(get("topic_index"), row, "(local.get $topic)")}
      {mark(get("out_key_valid"), "$key_null")}
      {mark(get("out_value_valid"), "$value_null")}
      (if (i32.or (local.get $key_null) (local.get $value_null)) (then
        {bump("out_key_nulls", "(local.get $key_null)")}
        {bump("out_value_nulls", "(local.get $value_null)")}))
      {put("rows", "(i32.add (local.get $row) (i32.const 1))")}
      (return (local.get $size))"""


def _stop_beyond_limit() -> str:
    """Return a statement that stops the guest if $cost exceeds the remaining output bytes of its record."""
    left = f"(i64.extend_i32_u (i32.sub {get('output_limit')} {get('output_bytes')}))"
    return f"(if (i64.gt_u (local.get $cost) {left}) (then {_stop(ENDING_OUTPUT)}))"


def _write(name: str, choose_topic: str) -> str:
    """One of the two writing functions. Redpanda's order of checks: ranges, batch, payload, options, topic."""
    options = "(param $options i32) (param $options_size i32)" if choose_topic else ""
    ranges = [("$start", "$size"), *([("$options", "$options_size")] if choose_topic else [])]
    no_row = f"(i32.ge_u (local.get $row) {get('row_capacity')})"
    full = f"(i32.or {no_row} (i32.or {_no_room('out_key')} {_no_room('out_value')}))"
    return f"""
  (func ${name} (param $start i32) (param $size i32) {options} (result i32)
    (local $at i32) (local $end i32) (local $to i32) (local $len i32) (local $code i32)
    (local $row i32) (local $topic i32)
    (local $key_end i32) (local $key_null i32) (local $value_end i32) (local $value_null i32)
    (local $header i32) (local $headers i32) (local $cost i64)
    (local $header_key_end i32) (local $header_value_end i32) (local $header_nulls i32)
    {COPY_LOCALS}
    {require_guest_ranges(*ranges)}
    (if (i32.eqz {get("active")}) (then (return (i32.const {NO_BATCH}))))
    (loop $retry
      (local.set $cost (i64.add (i64.extend_i32_u (local.get $size)) (i64.const {OUTPUT_OVERHEAD_BYTES})))
      {_stop_beyond_limit()}
      (local.set $row {get("rows")})
      (if {full} (then {_flush_and_retry()}))
      (local.set $at (local.get $start))
      (local.set $end (i32.add (local.get $at) (local.get $size)))
      (local.set $key_end {get("out_key_bytes")})
      (local.set $key_null (i32.const 0))
      (local.set $value_end {get("out_value_bytes")})
      (local.set $value_null (i32.const 0))
      (block $malformed
        {_field_to_column("out_key", "$key_end", "(local.set $key_null (i32.const 1))")}
        {_field_to_column("out_value", "$value_end", "(local.set $value_null (i32.const 1))")}
        {_headers_to_columns()}
        {choose_topic}
        {_commit()})
      )
    (i32.const {BAD_BUFFER}))"""

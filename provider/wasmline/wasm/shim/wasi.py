"""WASI preview 1 inside the shim: no files, no sockets, no sleep, and nothing that differs between two runs.

The wall clock is the record's timestamp; the monotonic clock moves one microsecond per reading and one millisecond
per record, so that loops that wait for time end and garbage collectors that divide by it work. By the other rule,
Redpanda's, it moves only one millisecond per reading. Random bytes are all 9. As in Redpanda's broker,
a write to stdout or stderr is one log event and everything else is "not supported".
Layouts: the snapshot-01 witx files.
"""

from __future__ import annotations

from wasmline.wasm.columns.control_block import ENDING_EXIT, LOG_HEADER, STDERR_HEAD_BYTES, STDERR_TAIL_BYTES
from wasmline.wasm.shim.wasi_stubs import VECTOR_BYTES, WASI_NOSYS
from wasmline.wasm.shim.wat import bump, get, put, require_guest_range, require_guest_ranges

WASI_INVAL = 28
RANDOM_BYTE = 9
RESOLUTION_NS = 1_000_000
TICK_NS = 1_000
SUBSCRIPTION_BYTES = 48
EVENT_BYTES = 32


def wasi() -> str:
    """Return the shim's WASI functions as WebAssembly text."""
    return "\n".join(
        [
            _strings("args", 0),
            _strings("environ", 8),
            _clocks(),
            _poll_oneoff(),
            _keep_stderr(),
            _fd_write(),
            f"""
  (func $random_get (param $to i32) (param $size i32) (result i32)
    (memory.fill $guest (local.get $to) (i32.const {RANDOM_BYTE}) (local.get $size))
    (i32.const 0))
  (func $proc_exit (param $status i32)
    {put("exit_status", "(local.get $status)")}
    {put("ending", f"(i32.const {ENDING_EXIT})")}
    (unreachable))""",
        ]
    )


def _strings(name: str, cell: int) -> str:
    """``args`` or ``environ``: count and size at ``strings + cell``; the texts of args, then of environ, after both."""
    count = f"(i32.load $own offset={cell} {get('strings')})"
    size = f"(i32.load $own offset={cell + 4} {get('strings')})"
    texts = f"(i32.add (i32.const 16) {get('strings')})"
    if cell:
        texts = f"(i32.add {texts} (i32.load $own offset=4 {get('strings')}))"
    return f"""
  (func ${name}_sizes_get (param $count i32) (param $size i32) (result i32)
    {require_guest_ranges(("$count", 4), ("$size", 4))}
    (i32.store $guest (local.get $count) {count})
    (i32.store $guest (local.get $size) {size})
    (i32.const 0))
  (func ${name}_get (param $pointers i32) (param $to i32) (result i32)
    (local $left i32) (local $from i32) (local $letter i32)
    {require_guest_range("(local.get $pointers)", count, element=4)}
    {require_guest_range("(local.get $to)", size)}
    (local.set $from {texts})
    (memory.copy $guest $own (local.get $to) (local.get $from) {size})
    (local.set $left {count})
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $left)))
      (i32.store $guest (local.get $pointers) (local.get $to))
      (local.set $pointers (i32.add (local.get $pointers) (i32.const 4)))
      (loop $skip
        (local.set $letter (i32.load8_u $own (local.get $from)))
        (local.set $from (i32.add (local.get $from) (i32.const 1)))
        (local.set $to (i32.add (local.get $to) (i32.const 1)))
        (br_if $skip (local.get $letter)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $next)))
    (i32.const 0))"""


def _clocks() -> str:
    known = f"""
    {require_guest_range("(local.get $to)", "(i32.const 8)")}
    (if (i32.gt_u (local.get $clock) (i32.const 3)) (then (return (i32.const {WASI_INVAL}))))"""

    def read(clock: str, step: int) -> str:
        return f"""
          (i64.store $guest (local.get $to) {get(clock)})
          {put(clock, f"(i64.add {get(clock)} (i64.const {step}))")}"""

    return f"""
  (func $clock_res_get (param $clock i32) (param $to i32) (result i32)
    {known}
    (i64.store $guest (local.get $to) (i64.const {RESOLUTION_NS}))
    (i32.const 0))
  (func $clock_time_get (param $clock i32) (param $precision i64) (param $to i32) (result i32)
    {known}
    (if (local.get $clock)
      (then (if {get("redpanda_clock")}
        (then {read("readings_ns", RESOLUTION_NS)})
        (else {read("monotonic_ns", TICK_NS)})))
      (else (i64.store $guest (local.get $to) (i64.mul {get("wall_ms")} (i64.const 1000000)))))
    (i32.const 0))"""


def _poll_oneoff() -> str:
    """No sleep: clocks fire at once, the monotonic clock jumps to the deadline; descriptors are not supported."""
    now = f"(select (i64.mul {get('wall_ms')} (i64.const 1000000)) {get('monotonic_ns')} (i32.eqz (local.get $clock)))"
    return f"""
  (func $sleep_until (param $clock i32) (param $time i64) (param $absolute i32)
    (if (local.get $absolute) (then
      (if (i64.le_s (local.get $time) {now}) (then (return)))
      (local.set $time (i64.sub (local.get $time) {now}))))
    ;; Unsigned and bounded, so that "for ever" does not turn the clock back.
    (if (i64.gt_u (local.get $time) (i64.const 0x3fffffffffffffff)) (then (return)))
    (if (i64.gt_u {get("monotonic_ns")} (i64.const 0x3fffffffffffffff)) (then (return)))
    {put("monotonic_ns", f"(i64.add {get('monotonic_ns')} (local.get $time))")})
  (func $poll_oneoff (param $from i32) (param $to i32) (param $count i32) (param $events i32) (result i32)
    (local $left i32) (local $kind i32)
    {require_guest_range("(local.get $from)", "(local.get $count)", element=SUBSCRIPTION_BYTES)}
    {require_guest_range("(local.get $to)", "(local.get $count)", element=EVENT_BYTES)}
    {require_guest_range("(local.get $events)", "(i32.const 4)")}
    (local.set $left (local.get $count))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $left)))
      (local.set $kind (i32.load8_u $guest offset=8 (local.get $from)))
      (if (i32.gt_u (local.get $kind) (i32.const 2)) (then (return (i32.const {WASI_NOSYS}))))
      (if (i32.eqz (local.get $kind)) (then
        (call $sleep_until (i32.load $guest offset=16 (local.get $from)) (i64.load $guest offset=24 (local.get $from))
          (i32.and (i32.load16_u $guest offset=40 (local.get $from)) (i32.const 1)))))
      (i64.store $guest (local.get $to) (i64.load $guest (local.get $from)))
      (i64.store $guest offset=8 (local.get $to) (i64.const 0))
      (i64.store $guest offset=16 (local.get $to) (i64.const 0))
      (i64.store $guest offset=24 (local.get $to) (i64.const 0))
      (i32.store16 $guest offset=8 (local.get $to) (select (i32.const {WASI_NOSYS}) (i32.const 0) (local.get $kind)))
      (i32.store8 $guest offset=10 (local.get $to) (local.get $kind))
      (local.set $from (i32.add (local.get $from) (i32.const {SUBSCRIPTION_BYTES})))
      (local.set $to (i32.add (local.get $to) (i32.const {EVENT_BYTES})))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $next)))
    (i32.store $guest (local.get $events) (local.get $count))
    (i32.const 0))"""


def _keep_stderr() -> str:
    """Head and tail of a record's stderr, kept beside the log: they explain a failure even if the log is full."""
    used, head, most = get("stderr_bytes"), f"(i32.const {STDERR_HEAD_BYTES})", f"(i32.const {STDERR_TAIL_BYTES})"
    tail = f"(i32.add {get('stderr')} {head})"
    tail_used = f"(i32.sub {used} {head})"
    return f"""
  (func $keep_stderr (param $from i32) (param $len i32)
    (local $kept i32)
    (if (i32.lt_u {used} {head}) (then
      (local.set $kept (i32.sub {head} {used}))
      (if (i32.gt_u (local.get $kept) (local.get $len)) (then (local.set $kept (local.get $len))))
      (memory.copy $own $guest (i32.add {get("stderr")} {used}) (local.get $from) (local.get $kept))
      {bump("stderr_bytes", "(local.get $kept)")}
      (local.set $from (i32.add (local.get $from) (local.get $kept)))
      (local.set $len (i32.sub (local.get $len) (local.get $kept)))))
    (if (i32.eqz (local.get $len)) (then (return)))
    (if (i32.gt_u (local.get $len) {most}) (then
      {put("stderr_torn", "(i32.const 1)")}
      (local.set $from (i32.add (local.get $from) (i32.sub (local.get $len) {most})))
      (local.set $len {most})))
    (local.set $kept {tail_used})
    (if (i32.gt_u (local.get $kept) (i32.sub {most} (local.get $len))) (then
      {put("stderr_torn", "(i32.const 1)")}
      (local.set $kept (i32.sub {most} (local.get $len)))
      (memory.copy $own $own {tail} (i32.add {tail} (i32.sub {tail_used} (local.get $kept))) (local.get $kept))))
    (memory.copy $own $guest (i32.add {tail} (local.get $kept)) (local.get $from) (local.get $len))
    {put("stderr_bytes", f"(i32.add {head} (i32.add (local.get $kept) (local.get $len)))")})"""


def _fd_write() -> str:
    """One log event per call, all vectors joined, or none; dropped ones are counted. Others are not supported."""

    def each_vector(body: str) -> str:
        return f"""
    (local.set $index (i32.const 0))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $index) (local.get $count)))
      (local.set $vector (i32.add (local.get $vectors) (i32.shl (local.get $index) (i32.const 3))))
      (local.set $from (i32.load $guest (local.get $vector)))
      (local.set $len (i32.load $guest offset=4 (local.get $vector)))
      {body}
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (br $next)))"""

    header = LOG_HEADER.size
    room = f"(i64.extend_i32_u (i32.sub {get('log_capacity')} {get('log_bytes')}))"
    return f"""
  (func $fd_write (param $fd i32) (param $vectors i32) (param $count i32) (param $written i32) (result i32)
    (local $index i32) (local $vector i32) (local $from i32) (local $len i32) (local $to i32) (local $total i64)
    {require_guest_range("(local.get $vectors)", "(local.get $count)", element=VECTOR_BYTES)}
    {require_guest_range("(local.get $written)", "(i32.const 4)")}
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1)) (then (return (i32.const {WASI_NOSYS}))))
    ;; 64 bits: vectors may overlap, and their sum decides whether the copies below stay inside the log.
    {
        each_vector(f'''{require_guest_ranges(("$from", "$len"))}
      (local.set $total (i64.add (local.get $total) (i64.extend_i32_u (local.get $len))))''')
    }
    (if (i32.eq (local.get $fd) (i32.const 2))
      (then {each_vector("(call $keep_stderr (local.get $from) (local.get $len))")}))
    (if (i64.gt_u (i64.add (local.get $total) (i64.const {header})) {room}) (then
      {bump("logs_dropped")}
      (i32.store $guest (local.get $written) (i32.wrap_i64 (local.get $total)))
      (return (i32.const 0))))
    (local.set $to (i32.add {get("log")} {get("log_bytes")}))
    (i32.store $own (local.get $to) {get("row")})
    (i32.store $own offset=4 (local.get $to) (local.get $fd))
    (i32.store $own offset=8 (local.get $to) (i32.wrap_i64 (local.get $total)))
    (local.set $to (i32.add (local.get $to) (i32.const {header})))
    {
        each_vector('''(memory.copy $own $guest (local.get $to) (local.get $from) (local.get $len))
      (local.set $to (i32.add (local.get $to) (local.get $len)))''')
    }
    {put("log_bytes", f"(i32.sub (local.get $to) {get('log')})")}
    ;; Last, because it may overwrite a vector whose length was measured above.
    (i32.store $guest (local.get $written) (i32.wrap_i64 (local.get $total)))
    (i32.const 0))"""

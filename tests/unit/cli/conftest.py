"""A transform in WebAssembly text: it passes records on, logs a line for those that end in ``?`` and traps on ``!``."""

from pathlib import Path

import pytest
import wasmtime

GUEST = """
(module
  (import "redpanda_transform" "check_abi_version_2" (func))
  (import "redpanda_transform" "read_batch_header"
    (func $header (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "redpanda_transform" "read_next_record" (func $next (param i32 i32 i32 i32 i32) (result i32)))
  (import "redpanda_transform" "write_record" (func $write (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $log (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 32)
  (data (i32.const 128) "\\90\\00\\00\\00\\06\\00\\00\\00")  ;; one iovec: 6 bytes at 144
  (data (i32.const 144) "asked\\0a")
  (func (export "_start") (local $left i32) (local $size i32) (local $last i32)
    (loop $batches
      (drop (call $header (i32.const 0) (i32.const 8) (i32.const 16) (i32.const 24) (i32.const 32)
                          (i32.const 40) (i32.const 48) (i32.const 56) (i32.const 64) (i32.const 72)))
      (local.set $left (i32.load (i32.const 8)))
      (block $done
        (loop $records
          (br_if $done (i32.eqz (local.get $left)))
          (local.set $size
            (call $next (i32.const 80) (i32.const 88) (i32.const 96) (i32.const 1024) (i32.const 2000000)))
          (local.set $last (i32.load8_u (i32.add (i32.const 1022) (local.get $size))))  ;; before the header count, 0
          (if (i32.eq (local.get $last) (i32.const 33)) (then (unreachable)))
          (if (i32.eq (local.get $last) (i32.const 63))
            (then (drop (call $log (i32.const 2) (i32.const 128) (i32.const 1) (i32.const 160)))))
          (drop (call $write (i32.const 1024) (local.get $size)))
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br $records)))
      (br $batches))))
"""


@pytest.fixture(scope="session")
def wasm() -> bytes:
    return bytes(wasmtime.wat2wasm(GUEST))


@pytest.fixture
def module(wasm: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "echo.wasm"
    path.write_bytes(wasm)
    return path

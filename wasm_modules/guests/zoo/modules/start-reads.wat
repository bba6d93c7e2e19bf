;; Waits for a batch in its start section.
;; ends: GuestTrap: uninitialized element
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "redpanda_transform" "read_batch_header"
    (func $read_batch_header (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever)))
  (func $init
    (drop (call $read_batch_header (i32.const 0) (i32.const 8) (i32.const 16) (i32.const 24) (i32.const 32)
      (i32.const 40) (i32.const 48) (i32.const 56) (i32.const 64) (i32.const 72))))
  (start $init))

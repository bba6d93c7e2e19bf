;; Exits before its first batch.
;; ends: GuestExit: status 71
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (call $proc_exit (i32.const 71))))

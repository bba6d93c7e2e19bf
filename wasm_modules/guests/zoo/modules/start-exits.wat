;; Calls the host in its start section, where there is nothing to answer yet.
;; ends: GuestTrap: uninitialized element
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever)))
  (func $init (call $proc_exit (i32.const 0)))
  (start $init))

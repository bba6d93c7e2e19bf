;; Uses its stack up in its start section.
;; ends: GuestTrap: call stack exhausted
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever)))
  (func $init (local i64) (call $init) (call $init))
  (start $init))

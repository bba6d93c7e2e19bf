;; Traps in its start section.
;; ends: GuestTrap: unreachable
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever)))
  (func $init (unreachable))
  (start $init))

;; Starts with data beyond its memory.
;; ends: GuestTrap: out of bounds memory access
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever)))
  (data (i32.const 65535) "ab"))

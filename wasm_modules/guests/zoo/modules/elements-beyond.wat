;; Starts with functions beyond its table.
;; ends: GuestTrap: undefined element
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever)))
  (table 1 funcref)
  (elem (i32.const 1) func $marker))

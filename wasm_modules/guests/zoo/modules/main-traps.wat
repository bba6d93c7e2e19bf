;; Gives up before its first batch.
;; ends: GuestTrap: unreachable
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (unreachable)))

;; Speaks an ABI that is not there yet.
;; ends: UnsupportedAbi: check_abi_version_3
(module
  (import "redpanda_transform" "check_abi_version_3" (func))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

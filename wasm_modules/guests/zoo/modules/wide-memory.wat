;; Has a memory of 64-bit addresses.
;; ends: InvalidModule: memory64
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") i64 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

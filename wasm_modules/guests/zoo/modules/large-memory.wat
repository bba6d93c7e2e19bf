;; Starts with all the memory there can be.
;; ends: GuestOutOfMemory: memory_bytes
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 65536)
  (func (export "_start") (loop $for-ever (br $for-ever))))

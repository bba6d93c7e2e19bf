;; Has a memory that threads share.
;; ends: InvalidModule: threads
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1 1 shared)
  (func (export "_start") (loop $for-ever (br $for-ever))))

;; Has a second memory, which no limit was set for.
;; ends: InvalidModule: cannot be instantiated
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (memory 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

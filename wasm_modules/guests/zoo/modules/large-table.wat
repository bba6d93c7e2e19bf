;; Starts with a table of a hundred million elements.
;; ends: InvalidModule: cannot be instantiated
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (table 100000000 funcref)
  (func (export "_start") (loop $for-ever (br $for-ever))))

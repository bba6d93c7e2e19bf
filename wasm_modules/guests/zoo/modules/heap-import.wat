;; Imports a function of objects on a collected heap.
;; ends: InvalidModule: gc
(module
  (type $array (array (mut i64)))
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "env" "keep" (func (param (ref null $array))))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

;; Has a _start that returns a vector.
;; ends: InvalidModule: vectors
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (result v128) (v128.const i64x2 0 0)))

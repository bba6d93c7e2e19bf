;; Imports a function of exceptions.
;; ends: InvalidModule: exception
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "env" "throw" (func (param exnref)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

;; Imports a function of typed references.
;; ends: InvalidModule: function references
(module
  (type $type (func))
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "env" "call" (func (param (ref null $type))))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

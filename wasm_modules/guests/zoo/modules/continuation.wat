;; Suspends itself.
;; ends: InvalidModule: stack switching
(module
  (type $type (func))
  (type $suspended (cont $type))
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

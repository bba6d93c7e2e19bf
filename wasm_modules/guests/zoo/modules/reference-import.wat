;; Imports a function of references to the host's things.
;; ends: UnknownImport: env.keep
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "env" "keep" (func (param externref funcref)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

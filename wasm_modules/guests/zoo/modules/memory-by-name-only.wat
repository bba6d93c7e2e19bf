;; Exports a function as memory.
;; ends: MissingExport: memory
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (func (export "memory"))
  (func (export "_start") (loop $for-ever (br $for-ever))))

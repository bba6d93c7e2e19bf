;; Exports a memory that it imports.
;; ends: UnknownImport: guest.memory
(module
  (import "guest" "memory" (memory 1))
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (export "memory" (memory 0))
  (func (export "_start") (loop $for-ever (br $for-ever))))

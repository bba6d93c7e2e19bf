;; Imports its memory.
;; ends: MissingExport: memory
(module
  (import "guest" "memory" (memory 1))
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (func (export "_start") (loop $for-ever (br $for-ever))))

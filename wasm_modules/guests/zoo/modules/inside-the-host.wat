;; Imports what the host keeps for itself.
;; ends: UnknownImport: redpanda_transform.table, trampoline.table
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "redpanda_transform" "table" (table 1 funcref))
  (import "trampoline" "table" (table 1 funcref))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

;; Imports functions that the host gives its shim alone.
;; ends: UnknownImport: host.flush, host.next_batch
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "host" "next_batch" (func (result i32)))
  (import "host" "flush" (func (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

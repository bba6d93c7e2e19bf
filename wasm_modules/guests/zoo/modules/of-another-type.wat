;; Imports a host function with another type.
;; ends: UnknownImport: redpanda_transform.write_record
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "redpanda_transform" "write_record" (func (param i64) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

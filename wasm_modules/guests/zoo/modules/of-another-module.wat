;; Imports a host function from the wrong module.
;; ends: UnknownImport: wasi_snapshot_preview1.write_record
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "wasi_snapshot_preview1" "write_record" (func (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

;; Exports a function of the host with parameters as its _start.
;; ends: MissingExport: _start
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "redpanda_transform" "read_batch_header"
    (func $read_batch_header (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (export "_start" (func $read_batch_header)))

;; Has no _start.
;; ends: MissingExport: _start
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1))

;; Exports a function of the host as its own _start.
;; ends: GuestProtocolError: returned from _start
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (export "_start" (func $marker)))

;; Does nothing.
;; ends: GuestProtocolError: returned from _start
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start")))

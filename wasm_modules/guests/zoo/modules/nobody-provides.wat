;; Imports what no host provides.
;; ends: UnknownImport: env.send_money
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (import "env" "send_money" (func (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

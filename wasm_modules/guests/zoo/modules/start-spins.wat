;; Loops for ever in its start section.
;; ends: GuestTimeout: cpu_ms_per_record
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever)))
  (func $init (loop $for-ever (br $for-ever)))
  (start $init))

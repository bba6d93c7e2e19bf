;; Takes memory until there is none, before its first batch.
;; ends: GuestOutOfMemory: memory_bytes
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (unreachable)))

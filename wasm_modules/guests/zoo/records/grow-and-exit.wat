;; Takes memory until there is none, and exits as a libc's abort may.
;; ends: GuestOutOfMemory: memory_bytes
(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
(call $proc_exit (i32.const 134))

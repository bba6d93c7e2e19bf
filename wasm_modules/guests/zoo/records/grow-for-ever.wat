;; Takes memory until there is none, and gives up.
;; ends: GuestOutOfMemory: memory_bytes
(loop $more (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable))) (br $more))

;; Logs two thousand lines.
;; ends: nothing
(i32.store (i32.const 4096) (i32.const 8192))
(i32.store (i32.const 4100) (i32.const 100))
(memory.fill (i32.const 8192) (i32.const 97) (i32.const 100))
(local.set $zero (i32.const 2000))
(loop $more
  (drop (call $fd_write (i32.const 2) (i32.const 4096) (i32.const 1) (i32.const 4160)))
  (br_if $more (local.tee $zero (i32.sub (local.get $zero) (i32.const 1)))))

;; Logs its whole memory a thousand times in one line.
;; ends: nothing
(local.set $zero (i32.const 1000))
(loop $vector
  (local.set $zero (i32.sub (local.get $zero) (i32.const 1)))
  (i64.store (i32.add (i32.const 8192) (i32.shl (local.get $zero) (i32.const 3))) (i64.const 0x0003000000000000))
  (br_if $vector (local.get $zero)))
(drop (call $fd_write (i32.const 1) (i32.const 8192) (i32.const 1000) (i32.const 4160)))
(drop (call $fd_write (i32.const 2) (i32.const 8192) (i32.const 1000) (i32.const 4160)))

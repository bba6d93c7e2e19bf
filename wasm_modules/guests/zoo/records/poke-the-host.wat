;; Calls functions that need no batch with the greatest lengths and no pointers.
;; ends: nothing
(drop (call $random_get (i32.const 0) (i32.const 0)))
(drop (call $write_record (i32.const 0) (i32.const 0)))
(drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 4096)))
(drop (call $fd_close (i32.const -1)))
(drop (call $sched_yield))
(drop (call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 4096)))

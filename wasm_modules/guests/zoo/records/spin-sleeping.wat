;; Sleeps for a day, again and again.
;; ends: GuestTimeout: cpu_ms_per_record
(i32.store8 (i32.const 4104) (i32.const 0))
(i32.store (i32.const 4112) (i32.const 1))
(i64.store (i32.const 4120) (i64.const 86400000000000))
(i32.store16 (i32.const 4136) (i32.const 0))
(loop $spin
  (drop (call $poll_oneoff (i32.const 4096) (i32.const 4160) (i32.const 1) (i32.const 4200)))
  (br $spin))

;; Fills its memory for ever, in steps as long as can be.
;; ends: GuestTimeout: cpu_ms_per_record
(loop $spin (memory.fill (i32.const 131072) (i32.const 1) (i32.const 65536)) (br $spin))

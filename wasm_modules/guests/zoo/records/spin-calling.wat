;; Asks the host for bytes for ever.
;; ends: GuestTimeout: cpu_ms_per_record
(loop $spin (drop (call $random_get (i32.const 4096) (i32.const 8))) (br $spin))

;; Writes what is no record for ever.
;; ends: GuestTimeout: cpu_ms_per_record
(loop $spin (drop (call $write_record (i32.const 4096) (i32.const 0))) (br $spin))

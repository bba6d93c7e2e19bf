;; Loops for ever.
;; ends: GuestTimeout: cpu_ms_per_record
(loop $spin (br $spin))

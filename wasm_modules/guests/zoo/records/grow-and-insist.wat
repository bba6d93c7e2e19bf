;; Takes memory for ever, whatever it is answered.
;; ends: GuestTimeout: cpu_ms_per_record
(loop $more (drop (memory.grow (i32.const 1))) (br $more))

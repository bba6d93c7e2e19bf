;; Calls itself in its last place for ever, which takes no stack.
;; ends: GuestTimeout: cpu_ms_per_record
(call $tail)
;; fields
(func $tail (return_call $tail))

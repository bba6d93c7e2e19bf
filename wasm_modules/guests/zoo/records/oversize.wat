;; Writes one record over the limit.
;; ends: GuestProtocolError: output_bytes_per_record
(drop (memory.grow (i32.const 32)))
(drop (call $write_record (i32.const 65536) (i32.const 1100000)))

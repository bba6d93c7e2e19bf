;; Writes the smallest record for ever.
;; ends: GuestProtocolError: output_bytes_per_record
(i32.store (i32.const 4096) (i32.const 0x000101))
(loop $flood (drop (call $write_record (i32.const 4096) (i32.const 3))) (br $flood))

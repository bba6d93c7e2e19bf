;; Writes its record for ever.
;; ends: GuestProtocolError: output_bytes_per_record
(loop $flood (drop (call $write_record (i32.const 65536) (local.get $size))) (br $flood))

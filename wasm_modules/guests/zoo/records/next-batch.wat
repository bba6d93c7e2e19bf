;; Asks for the next batch while it has records of this one.
;; ends: GuestProtocolError: before it had read all records
(drop (call $read_batch_header (i32.const 0) (i32.const 8) (i32.const 12) (i32.const 16) (i32.const 20)
  (i32.const 24) (i32.const 32) (i32.const 40) (i32.const 48) (i32.const 52)))

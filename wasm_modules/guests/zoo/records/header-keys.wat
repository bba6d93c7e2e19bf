;; Writes a record with 20,000 headers whose keys are null, and one with a key that is no text.
;; ends: GuestProtocolError: header whose key
(i32.store (i32.const 65536) (i32.const 0xb8c00101)) ;; no key, no value, and 20,000 …
(i32.store8 (i32.const 65540) (i32.const 0x02))
(memory.fill (i32.const 65541) (i32.const 0x01) (i32.const 40000))
(drop (call $write_record (i32.const 65536) (i32.const 40005)))
(i32.store (i32.const 4096) (i32.const 0x02020101))
(i32.store16 (i32.const 4100) (i32.const 0x01ff))
(drop (call $write_record (i32.const 4096) (i32.const 6)))

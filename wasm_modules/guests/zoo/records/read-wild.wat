;; Reads the next record to beyond its memory.
;; ends: GuestTrap: out of bounds memory access
(drop (call $read_next_record (i32.const 64) (i32.const 72) (i32.const 80) (i32.const -8) (i32.const 100000)))

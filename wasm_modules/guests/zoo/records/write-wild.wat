;; Writes a record from beyond its memory.
;; ends: GuestTrap: out of bounds memory access
(drop (call $write_record (i32.const 65536) (i32.const -1)))

;; Reads beyond its memory.
;; ends: GuestTrap: out of bounds memory access
(drop (i64.load (i32.const -4)))

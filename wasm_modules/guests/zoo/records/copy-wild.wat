;; Copies a range that ends beyond its memory.
;; ends: GuestTrap: out of bounds memory access
(memory.copy (i32.const 0) (i32.const 65536) (i32.const -1))

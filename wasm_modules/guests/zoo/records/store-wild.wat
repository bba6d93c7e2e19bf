;; Writes beyond its memory, at the greatest address that can be written down.
;; ends: GuestTrap: out of bounds memory access
(v128.store offset=0xffffffff (i32.const -1) (v128.const i64x2 1 2))

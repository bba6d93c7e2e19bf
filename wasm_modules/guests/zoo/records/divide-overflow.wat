;; Divides the least number by -1.
;; ends: GuestTrap: integer overflow
(drop (i32.div_s (i32.const 0x80000000) (i32.sub (local.get $zero) (i32.const 1))))

;; Divides by zero.
;; ends: GuestTrap: integer divide by zero
(drop (i32.div_u (i32.const 1) (local.get $zero)))

;; Makes an integer of what is no number.
;; ends: GuestTrap: invalid conversion to integer
(drop (i32.trunc_f64_s (f64.div (f64.const 0) (f64.convert_i32_s (local.get $zero)))))

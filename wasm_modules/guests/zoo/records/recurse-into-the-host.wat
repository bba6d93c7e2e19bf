;; Asks the host for bytes from every depth of a recursion that has no end.
;; ends: GuestTrap: call stack exhausted
(call $deeper)
;; fields
(func $deeper (local i64 i64) (drop (call $random_get (i32.const 4096) (i32.const 8))) (call $deeper) (call $deeper))

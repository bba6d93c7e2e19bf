;; Exits with a failure.
;; ends: GuestExit: status 3
(call $proc_exit (i32.const 3))

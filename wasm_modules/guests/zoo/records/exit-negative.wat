;; Exits with a negative status.
;; ends: GuestExit: status 4294967295
(call $proc_exit (i32.const -1))

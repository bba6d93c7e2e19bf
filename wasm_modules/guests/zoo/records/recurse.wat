;; Calls itself until its stack is used up.
;; ends: GuestTrap: call stack exhausted
(call $recurse)

;; Gives up.
;; ends: GuestTrap: unreachable
(unreachable)

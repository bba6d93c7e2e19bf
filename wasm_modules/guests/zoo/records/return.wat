;; Returns from _start.
;; ends: GuestProtocolError: returned from _start
(return)

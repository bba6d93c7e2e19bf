;; Writes a record thousands of times, and gives up.
;; ends: GuestTrap: unreachable
(local.set $room (i32.const 5000))
(loop $again
  (drop (call $write_record (i32.const 65536) (local.get $size)))
  (br_if $again (local.tee $room (i32.sub (local.get $room) (i32.const 1)))))
(unreachable)

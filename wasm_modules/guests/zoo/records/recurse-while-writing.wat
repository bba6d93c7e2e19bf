;; Writes a record from every depth of a recursion, so that the host empties its columns there.
;; ends: GuestProtocolError: output_bytes_per_record
(call $deeper (local.get $size))
;; fields
(func $deeper (param $size i32)
  (local $left i32)
  (local.set $left (i32.const 50))
  (loop $again
    (drop (call $write_record (i32.const 65536) (local.get $size)))
    (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
  (call $deeper (local.get $size)))

;; Writes payloads that are no records: each is refused, and it goes on.
;; ends: nothing
(memory.fill (i32.const 4096) (i32.const 0xff) (i32.const 64))
(local.set $zero (i32.const 64))
(loop $shorter
  (if (i32.ne (call $write_record (i32.const 4096) (local.get $zero)) (i32.const -2)) (then (unreachable)))
  (br_if $shorter (local.tee $zero (i32.sub (local.get $zero) (i32.const 1)))))
(if (i32.ne (call $write_record (i32.const 4096) (i32.const 0)) (i32.const -2)) (then (unreachable)))
(i32.store (i32.const 4096) (i32.const 0x00000101)) ;; one byte too many
(if (i32.ne (call $write_record (i32.const 4096) (i32.const 4)) (i32.const -2)) (then (unreachable)))

;; Takes memory page by page, writes to every one, and gives up when there is none.
;; ends: GuestOutOfMemory: memory_bytes
(loop $more
  (local.set $room (memory.grow (i32.const 1)))
  (if (i32.eq (local.get $room) (i32.const -1)) (then (unreachable)))
  (memory.fill (i32.shl (local.get $room) (i32.const 16)) (i32.const 255) (i32.const 65536))
  (br $more))

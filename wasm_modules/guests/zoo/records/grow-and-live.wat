;; Is refused memory, and goes on without.
;; ends: nothing
(if (i32.ne (memory.grow (i32.const 60000)) (i32.const -1)) (then (unreachable)))

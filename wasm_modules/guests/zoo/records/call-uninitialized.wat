;; Calls an element of its table that was never set.
;; ends: GuestTrap: uninitialized element
(call_indirect $functions (i32.const 1))
;; fields
(type $other (func (param i64)))
(table $functions 4 funcref)
(elem (table $functions) (i32.const 0) func $recurse)

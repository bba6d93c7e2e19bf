;; Calls a function as one of another type.
;; ends: GuestTrap: indirect call type mismatch
(call_indirect $functions (type $other) (i64.const 0) (i32.const 0))
;; fields
(type $other (func (param i64)))
(table $functions 4 funcref)
(elem (table $functions) (i32.const 0) func $recurse)

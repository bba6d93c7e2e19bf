;; Calls an element beyond its table.
;; ends: GuestTrap: undefined element
(call_indirect $functions (i32.const 99))
;; fields
(type $other (func (param i64)))
(table $functions 4 funcref)
(elem (table $functions) (i32.const 0) func $recurse)

;; Has more tables than a module needs.
;; ends: InvalidModule: cannot be instantiated
(module
  (import "redpanda_transform" "check_abi_version_1" (func $marker))
  (memory (export "memory") 1)
  (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) 
  (func (export "_start") (loop $for-ever (br $for-ever))))

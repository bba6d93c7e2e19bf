;; Says nothing of the ABI.
;; ends: UnsupportedAbi: redpanda_transform.check_abi_version_1
(module
  (memory (export "memory") 1)
  (func (export "_start") (loop $for-ever (br $for-ever))))

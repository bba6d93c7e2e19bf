;; Asks the schema registry for ever.
;; ends: GuestTimeout: cpu_ms_per_record
(loop $spin (drop (call $get_schema_definition_len (i32.const 1) (i32.const 4096))) (br $spin))

/* The transform ABI, version 2, as a module imports it. For C and C++; C++ transforms want wasmline/transform.hpp.
 *
 * Pointers are offsets into the module's exported memory. Buffers hold one record payload (see wasmline/record.hpp).
 * A negative result is one of the WASMLINE_* codes below.
 */
#ifndef WASMLINE_ABI_H
#define WASMLINE_ABI_H

#include <stdint.h>

#define WASMLINE_NO_ACTIVE_BATCH (-1) /* no batch is in progress, or all of its records were read */
#define WASMLINE_INVALID_BUFFER (-2)  /* the buffer is too small (read), or does not hold a record payload (write) */
#define WASMLINE_INVALID_WRITE (-3)   /* the named topic is not one of the transform's outputs */

#define WASMLINE_IMPORT(name) __attribute__((import_module("redpanda_transform"), import_name(name)))

#ifdef __cplusplus
extern "C" {
#endif

/* Says "this module speaks ABI 2" by being imported; it does nothing. */
WASMLINE_IMPORT("check_abi_version_2")
void wasmline_check_abi_version_2(void);

/* Waits for the next batch; calling it again is how a transform finishes a batch. Returns the size in bytes of the
 * largest record payload in the batch. */
WASMLINE_IMPORT("read_batch_header")
int32_t wasmline_read_batch_header(int64_t* base_offset, int32_t* record_count, int32_t* partition_leader_epoch,
                                   int16_t* attributes, int32_t* last_offset_delta, int64_t* base_timestamp,
                                   int64_t* max_timestamp, int64_t* producer_id, int16_t* producer_epoch,
                                   int32_t* base_sequence);

/* Reads the next record's payload into the buffer. Returns its size. `timestamp` is Unix time in milliseconds and
 * `offset` the record's offset in its partition, both absolute. */
WASMLINE_IMPORT("read_next_record")
int32_t wasmline_read_next_record(uint8_t* attributes, int64_t* timestamp, int64_t* offset, char* buffer,
                                  uint32_t capacity);

/* Writes a payload to the first output topic. Returns `size`. */
WASMLINE_IMPORT("write_record")
int32_t wasmline_write_record(const char* payload, uint32_t size);

/* Writes a payload to the output topic that the options name: byte 0x01, then the topic as a length-prefixed string.
 * No options at all stand for the first output topic. Returns `size`. */
WASMLINE_IMPORT("write_record_with_options")
int32_t wasmline_write_record_with_options(const char* payload, uint32_t size, const char* options,
                                           uint32_t options_size);

#ifdef __cplusplus
}
#endif

#endif

/* Passes every record on as it is. */
#include <stdlib.h>

#include "wasmline/abi.h"

int main(void) {
  wasmline_check_abi_version_2();
  char* payload = NULL;
  while (1) {
    int64_t base_offset, base_timestamp, max_timestamp, producer_id;
    int32_t count = 0, leader_epoch, last_offset_delta, base_sequence;
    int16_t batch_attributes, producer_epoch;
    const int32_t capacity =
        wasmline_read_batch_header(&base_offset, &count, &leader_epoch, &batch_attributes, &last_offset_delta,
                                   &base_timestamp, &max_timestamp, &producer_id, &producer_epoch, &base_sequence);
    if (capacity < 0 || (payload = realloc(payload, (size_t)capacity + 1)) == NULL) abort();
    for (; count > 0; --count) {
      uint8_t attributes;
      int64_t timestamp, offset;
      const int32_t size =
          wasmline_read_next_record(&attributes, &timestamp, &offset, payload, (uint32_t)capacity);
      if (size < 0 || wasmline_write_record(payload, (uint32_t)size) != size) abort();
    }
  }
}

// The transform ABI without WebAssembly: a transform, compiled for this machine, between Arrow columns.
//
// The codec is the engine's: payloads are encoded into the transform's own buffer and parsed back, with the same checks,
// into columns. A transform never returns from `main`, so it has a stack of its own.
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "wasmline/abi.h"

int transform_main();  // the transform's `main`, renamed by the compiler's command line

namespace {

struct Binary {
  const std::int32_t* offsets;
  const char* data;
  const std::uint8_t* validity;  // one byte a row here, null for a column without nulls
};

struct Batch {
  std::int32_t records;
  const std::int64_t* timestamps;
  const std::int64_t* record_offsets;
  Binary key, value;
  const std::int32_t* header_offsets;  // null for a batch without headers
  Binary header_key, header_value;
};

template <class T>
class Buffer {
 public:
  T* room(std::size_t count) {
    if (size_ + count > capacity_) {
      capacity_ = 2 * (size_ + count);
      data_ = static_cast<T*>(std::realloc(data_, capacity_ * sizeof(T)));
    }
    return data_ + size_;
  }
  void grow(std::size_t count) { size_ += count; }
  void push(T item) { *room(1) = item, ++size_; }
  void truncate(std::size_t size) { size_ = size; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

struct Column {
  Buffer<std::int32_t> offsets;
  Buffer<char> data;
  Buffer<std::uint8_t> valid;

  void clear() { offsets.truncate(0), data.truncate(0), valid.truncate(0), offsets.push(0); }
};

struct Outputs {
  Buffer<std::int32_t> rows, header_offsets;
  Column key, value, header_key, header_value;

  void clear() {
    rows.truncate(0), header_offsets.truncate(0), header_offsets.push(0);
    for (Column* column : {&key, &value, &header_key, &header_value}) column->clear();
  }
};

ucontext_t caller, transform;
std::unique_ptr<char[]> stack;
const Batch* batch = nullptr;
Outputs outputs;
std::int32_t delivered = 0;
Buffer<std::int32_t> sizes;

std::uint64_t zigzag(std::int64_t number) {
  return (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
}

std::int32_t varint_size(std::int64_t number) {
  std::int32_t size = 1;
  for (auto rest = zigzag(number); rest >= 0x80; rest >>= 7) ++size;
  return size;
}

char* put_varint(char* to, std::int64_t number) {
  auto rest = zigzag(number);
  for (; rest >= 0x80; rest >>= 7) *to++ = static_cast<char>(rest | 0x80);
  *to++ = static_cast<char>(rest);
  return to;
}

bool take_varint(const char*& at, const char* end, std::int64_t& number) {
  std::uint64_t code = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (at == end) return false;
    const auto byte = static_cast<unsigned char>(*at++);
    code |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  number = static_cast<std::int64_t>(code >> 1) ^ -static_cast<std::int64_t>(code & 1);
  return true;
}

std::int32_t length(const Binary& column, std::int32_t index) {
  if (column.validity && !column.validity[index]) return -1;
  return column.offsets[index + 1] - column.offsets[index];
}

std::int32_t size(const Binary& column, std::int32_t index) {
  const std::int32_t bytes = length(column, index);
  return varint_size(bytes) + (bytes > 0 ? bytes : 0);
}

char* put(char* to, const Binary& column, std::int32_t index) {
  const std::int32_t bytes = length(column, index);
  to = put_varint(to, bytes);
  if (bytes <= 0) return to;
  std::memcpy(to, column.data + column.offsets[index], static_cast<std::size_t>(bytes));
  return to + bytes;
}

std::int32_t first_header(std::int32_t row) { return batch->header_offsets ? batch->header_offsets[row] : 0; }
std::int32_t last_header(std::int32_t row) { return batch->header_offsets ? batch->header_offsets[row + 1] : 0; }

std::int32_t measure(std::int32_t row) {
  std::int32_t bytes = size(batch->key, row) + size(batch->value, row);
  bytes += varint_size(last_header(row) - first_header(row));
  for (std::int32_t header = first_header(row); header < last_header(row); ++header) {
    bytes += size(batch->header_key, header) + size(batch->header_value, header);
  }
  return bytes;
}

bool take(const char*& at, const char* end, Column& column) {
  std::int64_t bytes;
  if (!take_varint(at, end, bytes) || bytes < -1 || bytes > end - at) return false;
  if (bytes > 0) {
    std::memcpy(column.data.room(static_cast<std::size_t>(bytes)), at, static_cast<std::size_t>(bytes));
    column.data.grow(static_cast<std::size_t>(bytes));
    at += bytes;
  }
  column.valid.push(bytes >= 0);
  column.offsets.push(static_cast<std::int32_t>(column.data.size()));
  return true;
}

bool take_headers(const char*& at, const char* end) {
  std::int64_t count;
  if (!take_varint(at, end, count) || count < 0) return false;
  for (; count > 0; --count) {
    if (!take(at, end, outputs.header_key) || !take(at, end, outputs.header_value)) return false;
  }
  return at == end;
}

}  // namespace

extern "C" {

void wasmline_check_abi_version_2() {}

std::int32_t wasmline_read_batch_header(std::int64_t* base_offset, std::int32_t* record_count, std::int32_t* epoch,
                                        std::int16_t* attributes, std::int32_t* last_delta, std::int64_t* base_time,
                                        std::int64_t* max_time, std::int64_t* producer_id, std::int16_t* producer_epoch,
                                        std::int32_t* base_sequence) {
  swapcontext(&transform, &caller);  // this batch is done; the next call of `run` comes back here
  std::int32_t largest = 0;
  *max_time = batch->timestamps[0];
  sizes.truncate(0);
  for (std::int32_t row = 0; row < batch->records; ++row) {
    sizes.push(measure(row));
    if (sizes.data()[row] > largest) largest = sizes.data()[row];
    if (batch->timestamps[row] > *max_time) *max_time = batch->timestamps[row];
  }
  *base_offset = batch->record_offsets[0];
  *record_count = batch->records;
  *epoch = 0, *attributes = 0, *base_time = batch->timestamps[0];
  *last_delta = static_cast<std::int32_t>(batch->record_offsets[batch->records - 1] - *base_offset);
  *producer_id = -1, *producer_epoch = -1, *base_sequence = -1;
  return largest;
}

std::int32_t wasmline_read_next_record(std::uint8_t* attributes, std::int64_t* timestamp, std::int64_t* offset,
                                       char* buffer, std::uint32_t capacity) {
  const std::int32_t row = delivered;
  if (row >= batch->records) return WASMLINE_NO_ACTIVE_BATCH;
  const std::int32_t bytes = sizes.data()[row];
  if (static_cast<std::uint32_t>(bytes) > capacity) return WASMLINE_INVALID_BUFFER;
  *attributes = 0, *timestamp = batch->timestamps[row], *offset = batch->record_offsets[row];
  char* to = put(put(buffer, batch->key, row), batch->value, row);
  to = put_varint(to, last_header(row) - first_header(row));
  for (std::int32_t header = first_header(row); header < last_header(row); ++header) {
    to = put(put(to, batch->header_key, header), batch->header_value, header);
  }
  ++delivered;
  return bytes;
}

std::int32_t wasmline_write_record(const char* payload, std::uint32_t bytes) {
  const char* at = payload;
  const char* const end = payload + bytes;
  if (!take(at, end, outputs.key) || !take(at, end, outputs.value) || !take_headers(at, end)) std::abort();
  outputs.header_offsets.push(static_cast<std::int32_t>(outputs.header_key.valid.size()));
  outputs.rows.push(delivered - 1);
  return static_cast<std::int32_t>(bytes);
}

std::int32_t wasmline_write_record_with_options(const char*, std::uint32_t, const char*, std::uint32_t) {
  return WASMLINE_INVALID_WRITE;  // the transforms here have one output
}

// Runs the transform over one batch and returns its outputs, which live until the next call.
const Outputs* run(const Batch* next) {
  if (!stack) {
    stack = std::make_unique<char[]>(1 << 20);
    getcontext(&transform);
    transform.uc_stack = {.ss_sp = stack.get(), .ss_flags = 0, .ss_size = 1 << 20};
    transform.uc_link = &caller;
    makecontext(&transform, reinterpret_cast<void (*)()>(transform_main), 0);
    swapcontext(&caller, &transform);  // up to its first read_batch_header
  }
  batch = next;
  delivered = 0;
  outputs.clear();
  swapcontext(&caller, &transform);
  return &outputs;
}

std::size_t rows(const Outputs* from) { return from->rows.size(); }
const void* column(const Outputs* from, int index, int part, std::size_t* bytes) {
  const Column* const columns[] = {&from->key, &from->value, &from->header_key, &from->header_value};
  const Column& chosen = *columns[index];
  if (part == 0) return *bytes = chosen.offsets.size() * 4, chosen.offsets.data();
  if (part == 1) return *bytes = chosen.data.size(), chosen.data.data();
  return *bytes = chosen.valid.size(), chosen.valid.data();
}
const void* source_rows(const Outputs* from, std::size_t* bytes) {
  return *bytes = from->rows.size() * 4, from->rows.data();
}
const void* header_offsets(const Outputs* from, std::size_t* bytes) {
  return *bytes = from->header_offsets.size() * 4, from->header_offsets.data();
}

}

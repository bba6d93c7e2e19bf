// Wasmline's C++ SDK: write a transform as one function of a record.
//
//   #include "wasmline/transform.hpp"
//
//   int main() {
//     wasmline::on_record([](const wasmline::Record& record, wasmline::Writer& writer) { writer.write(record); });
//   }
//
// Speaks the Data Transforms ABI, version 2: the module runs in Wasmline and in a Redpanda broker. Exceptions are off
// (-fno-exceptions); a broken promise of the host ends in a line on stderr and a trap.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wasmline/abi.h"
#include "wasmline/json.hpp"
#include "wasmline/log.hpp"
#include "wasmline/numbers.hpp"
#include "wasmline/record.hpp"

namespace wasmline {

// The header that says why a record was rejected.
inline constexpr std::string_view reason_header = "wasmline.reason";

// Returns the name of the output topic with this index, from 0, in the order of the deployment. Traps if there is none.
inline std::string_view output_topic(unsigned index) {
  std::string variable = "REDPANDA_OUTPUT_TOPIC_";
  append_number(variable, index);
  const char* topic = std::getenv(variable.c_str());
  if (topic == nullptr) fail("wasmline: there is no output topic " + variable.substr(variable.rfind('_') + 1));
  return topic;
}

// Writes output records. It keeps its buffer from one record to the next.
class Writer {
 public:
  // Writes a record to the first output topic.
  void write(const Record& record) {
    payload_.record(record);
    check(wasmline_write_record(payload_.data(), payload_.size()));
  }

  // Writes a record to an output topic by name, one of output_topic(0), output_topic(1), …
  void write(const Record& record, std::string_view topic) {
    payload_.record(record);
    write_to(topic);
  }

  // Writes a record as it is, with one more header that says why, to the output topic kept for such records.
  void reject(const Record& record, std::string_view reason, std::string_view topic) {
    payload_.record(record, 1);
    payload_.header({reason_header, reason});
    write_to(topic);
  }

 private:
  void write_to(std::string_view topic) {
    options_.clear();
    options_.number(-1);  // 0x01, which says that a topic follows
    options_.bytes(topic);
    check(wasmline_write_record_with_options(payload_.data(), payload_.size(), options_.data(), options_.size()));
  }

  void check(std::int32_t written) const {
    if (written == WASMLINE_INVALID_WRITE) fail("wasmline: the topic is not an output of this transform");
    if (written != static_cast<std::int32_t>(payload_.size())) fail("wasmline: the host refused a record");
  }

  detail::Encoder payload_;
  detail::Encoder options_;
};

namespace detail {

// Input payloads, read into one buffer that only grows. Records are views of it: nothing is copied.
class Reader {
 public:
  // Waits for the next batch and returns how many records it has.
  std::int32_t next_batch() {
    std::int64_t base_offset, base_timestamp, max_timestamp, producer_id;
    std::int32_t record_count = 0, leader_epoch, last_offset_delta, base_sequence;
    std::int16_t attributes, producer_epoch;
    const std::int32_t largest =
        wasmline_read_batch_header(&base_offset, &record_count, &leader_epoch, &attributes, &last_offset_delta,
                                   &base_timestamp, &max_timestamp, &producer_id, &producer_epoch, &base_sequence);
    if (largest < 0) fail("wasmline: read_batch_header failed");
    reserve(static_cast<std::uint32_t>(largest));
    return record_count;
  }

  // Reads the next record; it is valid until the next call.
  const Record& next_record() {
    std::uint8_t attributes = 0;
    const std::int32_t size =
        wasmline_read_next_record(&attributes, &record_.timestamp, &record_.offset, buffer_.get(), capacity_);
    if (size < 0) fail("wasmline: read_next_record failed");
    if (!decode({buffer_.get(), static_cast<std::size_t>(size)}, record_, headers_)) {
      fail("wasmline: the host gave bytes that are not a record");
    }
    return record_;
  }

 private:
  void reserve(std::uint32_t capacity) {
    if (capacity <= capacity_) return;
    buffer_ = std::make_unique_for_overwrite<char[]>(capacity);
    capacity_ = capacity;
  }

  std::unique_ptr<char[]> buffer_;
  std::uint32_t capacity_ = 0;
  Record record_;
  std::vector<Header> headers_;
};

}  // namespace detail

// Calls `callback(const Record&, Writer&)` for each record of the input topic, in order. Never returns. Everything
// before it in `main` runs once per instance.
template <class Callback>
[[noreturn]] void on_record(Callback&& callback) {
  wasmline_check_abi_version_2();
  detail::Reader reader;
  Writer writer;
  while (true) {
    for (std::int32_t left = reader.next_batch(); left > 0; --left) callback(reader.next_record(), writer);
  }
}

}  // namespace wasmline

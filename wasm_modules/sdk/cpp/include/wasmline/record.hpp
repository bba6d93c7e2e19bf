// A record, and its payload: the body of a Kafka record without length, attributes, timestamp and offset.
//
//   key length, key, value length, value, header count, { key length, key, value length, value } per header
//
// All numbers are varints (wasmline/varint.hpp); length -1 is null, without bytes; 0 is present and empty.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wasmline/varint.hpp"

namespace wasmline {

// Bytes that may be null, which is not the same as empty.
using Bytes = std::optional<std::string_view>;

struct Header {
  std::string_view key;
  Bytes value;
};

// A view: the bytes belong to whoever made the record. Those of an input record live until its callback returns.
struct Record {
  Bytes key;
  Bytes value;
  std::span<const Header> headers = {};
  std::int64_t timestamp = 0;  // Unix time in milliseconds; of input records only, outputs take their input's
  std::int64_t offset = 0;     // in the input partition; of input records only
};

namespace detail {

inline void append_bytes(std::string& out, const Bytes& bytes) {
  append_varint(out, bytes ? static_cast<std::int64_t>(bytes->size()) : -1);
  if (bytes) out += *bytes;
}

inline void append_header(std::string& out, const Header& header) {
  append_bytes(out, header.key);
  append_bytes(out, header.value);
}

inline void append_body(std::string& out, const Record& record, std::size_t header_count) {
  append_bytes(out, record.key);
  append_bytes(out, record.value);
  append_varint(out, static_cast<std::int64_t>(header_count));
  for (const Header& header : record.headers) append_header(out, header);
}

// Reads a payload from front to back. After a failed step `valid()` is false and every step gives nothing.
class Decoder {
 public:
  explicit Decoder(std::string_view payload) : cursor_(payload.data()), end_(payload.data() + payload.size()) {}

  [[nodiscard]] bool valid() const { return valid_; }
  [[nodiscard]] bool done() const { return valid_ && cursor_ == end_; }

  std::int64_t number() {
    const auto taken = take_varint(&cursor_, end_);
    valid_ = valid_ && taken;
    return valid_ ? *taken : -1;
  }

  Bytes bytes() {
    const std::int64_t size = number();
    valid_ = valid_ && size <= end_ - cursor_;
    if (!valid_ || size < 0) return std::nullopt;
    const std::string_view taken(cursor_, static_cast<std::size_t>(size));
    cursor_ += size;
    return taken;
  }

 private:
  const char* cursor_;
  const char* end_;
  bool valid_ = true;
};

}  // namespace detail

// Makes `record` a view of a payload, its headers kept in `headers`. False if the bytes are not a payload.
inline bool decode(std::string_view payload, Record& record, std::vector<Header>& headers) {
  detail::Decoder decoder(payload);
  record.key = decoder.bytes();
  record.value = decoder.bytes();
  headers.clear();
  for (auto left = decoder.number(); left > 0 && decoder.valid(); --left) {
    const Bytes key = decoder.bytes();
    headers.push_back({key.value_or(""), decoder.bytes()});
  }
  record.headers = headers;
  return decoder.done();
}

}  // namespace wasmline

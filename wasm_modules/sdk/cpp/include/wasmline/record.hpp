// A record, and its payload: the body of a Kafka record without length, attributes, timestamp and offset.
//
//   key length, key, value length, value, header count, { key length, key, value length, value } per header
//
// All numbers are varints (wasmline/varint.hpp); length -1 is null, without bytes; 0 is present and empty.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "wasmline/bytes.hpp"
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

// Writes payloads into one buffer that only grows.
class Encoder {
 public:
  void clear() { end_ = begin_.get(); }

  void number(std::int64_t number) {
    reserve(max_varint_size);
    end_ = write_varint(number, end_);
  }

  [[gnu::always_inline]] void bytes(const Bytes& bytes) {  // a call would pass it through memory
    if (!bytes) return number(-1);
    reserve(max_varint_size + bytes->size());
    end_ = copy(*bytes, write_varint(static_cast<std::int64_t>(bytes->size()), end_));
  }

  void header(const Header& header) {
    bytes(header.key);
    bytes(header.value);
  }

  // Writes a record that has `more` headers than it holds: they are to follow.
  void record(const Record& record, std::size_t more = 0) {
    clear();
    bytes(record.key);
    bytes(record.value);
    number(static_cast<std::int64_t>(record.headers.size() + more));
    for (const Header& each : record.headers) header(each);
  }

  [[nodiscard]] const char* data() const { return begin_.get(); }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(end_ - begin_.get()); }

 private:
  void reserve(std::size_t room) {
    if (room > static_cast<std::size_t>(limit_ - end_)) grow(room);
  }

  [[gnu::noinline]] void grow(std::size_t room) {
    const std::size_t used = size(), capacity = 2 * (used + room);
    auto larger = std::make_unique_for_overwrite<char[]>(capacity);
    if (used != 0) std::memcpy(larger.get(), begin_.get(), used);
    begin_ = std::move(larger);
    end_ = begin_.get() + used;
    limit_ = begin_.get() + capacity;
  }

  std::unique_ptr<char[]> begin_;
  char* end_ = nullptr;
  char* limit_ = nullptr;
};

// Reads a payload from front to back. After a failed step `valid()` is false and every step gives nothing.
class Decoder {
 public:
  explicit Decoder(std::string_view payload) : cursor_(payload.data()), end_(payload.data() + payload.size()) {}

  [[nodiscard]] bool valid() const { return valid_; }
  [[nodiscard]] bool done() const { return valid_ && cursor_ == end_; }

  std::int64_t number() {
    const Varint read = read_varint(cursor_, end_);
    valid_ = valid_ && read.end != nullptr;
    if (!valid_) return -1;
    cursor_ = read.end;
    return read.number;
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
[[gnu::always_inline]] inline bool decode(std::string_view payload, Record& record, std::vector<Header>& headers) {
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

// Signed 64-bit integers as Kafka writes them: zigzag, then base 128 with the least significant group first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wasmline {

inline constexpr std::size_t max_varint_size = 10;

// Writes a number of up to ten bytes, and returns their end.
inline char* write_varint(std::int64_t number, char* to) {
  auto rest = (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
  while (rest >= 0x80) {
    *to++ = static_cast<char>(rest | 0x80);
    rest >>= 7;
  }
  *to++ = static_cast<char>(rest);
  return to;
}

// A number that was read, and where its bytes end: null if they ended too early.
struct Varint {
  std::int64_t number;
  const char* end;
};

namespace detail {

constexpr std::int64_t from_zigzag(std::uint64_t code) {
  return static_cast<std::int64_t>((code >> 1) ^ (~(code & 1) + 1));
}

[[gnu::noinline]] inline Varint read_long_varint(const char* at, const char* end) {
  std::uint64_t groups = 0;
  for (unsigned shift = 0; shift < 70 && at != end; shift += 7) {
    const auto byte = static_cast<unsigned char>(*at++);
    groups |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return {from_zigzag(groups), at};
  }
  return {0, nullptr};
}

}  // namespace detail

// Reads the number at the beginning of [at, end). Most are lengths below 8 KiB, of one or two bytes.
inline Varint read_varint(const char* at, const char* end) {
  const auto byte = [at](int index) -> unsigned { return static_cast<unsigned char>(at[index]); };
  if (at != end && byte(0) < 0x80) return {detail::from_zigzag(byte(0)), at + 1};
  if (end - at >= 2 && byte(1) < 0x80) return {detail::from_zigzag((byte(0) & 0x7F) | byte(1) << 7), at + 2};
  return detail::read_long_varint(at, end);
}

}  // namespace wasmline

// Signed 64-bit integers as Kafka writes them: zigzag, then base 128 with the least significant group first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

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

namespace detail {

constexpr std::int64_t from_zigzag(std::uint64_t code) {
  return static_cast<std::int64_t>((code >> 1) ^ (~(code & 1) + 1));
}

[[gnu::noinline]] inline std::optional<std::int64_t> take_long_varint(const char** cursor, const char* end) {
  std::uint64_t groups = 0;
  for (unsigned shift = 0; shift < 70 && *cursor != end; shift += 7) {
    const auto byte = static_cast<unsigned char>(*(*cursor)++);
    groups |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return from_zigzag(groups);
  }
  return std::nullopt;
}

}  // namespace detail

// Takes a number off [*cursor, end) and moves the cursor behind it; nothing where the bytes end too early. Most are
// lengths below 8 KiB, of one or two bytes.
inline std::optional<std::int64_t> take_varint(const char** cursor, const char* end) {
  const auto byte = [at = *cursor](int index) -> unsigned { return static_cast<unsigned char>(at[index]); };
  if (end - *cursor >= 2) {
    if (byte(0) < 0x80) return ++*cursor, detail::from_zigzag(byte(0));
    if (byte(1) < 0x80) return *cursor += 2, detail::from_zigzag((byte(0) & 0x7F) | byte(1) << 7);
  }
  return detail::take_long_varint(cursor, end);
}

}  // namespace wasmline

// Signed 64-bit integers as Kafka writes them: zigzag, then base 128 with the least significant group first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace wasmline {

inline void append_varint(std::string& out, std::int64_t number) {
  auto rest = (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
  while (rest >= 0x80) {
    out += static_cast<char>(rest | 0x80);
    rest >>= 7;
  }
  out += static_cast<char>(rest);
}

// Takes a number off [*cursor, end) and moves the cursor behind it; nothing where the bytes end too early.
inline std::optional<std::int64_t> take_varint(const char** cursor, const char* end) {
  std::uint64_t groups = 0;
  for (unsigned shift = 0; shift < 70 && *cursor != end; shift += 7) {
    const auto byte = static_cast<unsigned char>(*(*cursor)++);
    groups |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return static_cast<std::int64_t>((groups >> 1) ^ (~(groups & 1) + 1));
  }
  return std::nullopt;
}

}  // namespace wasmline

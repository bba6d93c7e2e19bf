// Short runs of bytes, eight at a time. A call of memchr or memcpy costs more than most fields of a record are worth: in
// WebAssembly, each is a call out of the module or a loop over single bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace wasmline {

namespace detail {

static_assert(std::endian::native == std::endian::little);

// Eight times the same byte.
constexpr std::uint64_t repeated(unsigned char byte) { return std::uint64_t{0x0101010101010101} * byte; }

inline std::uint64_t load_eight(const char* from) {
  std::uint64_t eight;
  std::memcpy(&eight, from, 8);
  return eight;
}

inline std::uint32_t load_four(const char* from) {
  std::uint32_t four;
  std::memcpy(&four, from, 4);
  return four;
}

// Marks bytes that are 0 with their top bit. The lowest mark is right; marks above it may be wrong.
constexpr std::uint64_t zero_bytes(std::uint64_t eight) { return (eight - repeated(1)) & ~eight & repeated(0x80); }

}  // namespace detail

// Copies bytes that do not overlap, and returns the end of the copy.
inline char* copy(std::string_view from, char* to) {
  const std::size_t size = from.size();
  if (size > 256) {
    std::memcpy(to, from.data(), size);
  } else if (size >= 8) {
    std::size_t at = 0;
    for (; at + 32 < size; at += 32) std::memcpy(to + at, from.data() + at, 32);
    for (; at + 8 < size; at += 8) std::memcpy(to + at, from.data() + at, 8);
    std::memcpy(to + size - 8, from.data() + size - 8, 8);
  } else if (size >= 4) {
    std::memcpy(to, from.data(), 4);
    std::memcpy(to + size - 4, from.data() + size - 4, 4);
  } else {
    for (std::size_t at = 0; at < size; ++at) to[at] = from[at];
  }
  return to + size;
}

// Whether two texts are the same.
inline bool same(std::string_view one, std::string_view other) {
  const std::size_t size = one.size();
  const char *const first = one.data(), *const second = other.data();
  if (size != other.size()) return false;
  if (size < 4) {
    const auto equal = [&](std::size_t at) { return first[at] == second[at]; };
    return size == 0 || (equal(0) && equal(size / 2) && equal(size - 1));
  }
  if (size < 8) {
    return ((detail::load_four(first) ^ detail::load_four(second)) |
            (detail::load_four(first + size - 4) ^ detail::load_four(second + size - 4))) == 0;
  }
  for (std::size_t at = 0; at + 8 < size; at += 8) {
    if (detail::load_eight(first + at) != detail::load_eight(second + at)) return false;
  }
  return detail::load_eight(first + size - 8) == detail::load_eight(second + size - 8);
}

// Returns where `letter` first stands in `text`, or the text's size. Fastest where text continues behind the letter.
inline std::size_t position(std::string_view text, char letter) {
  const std::uint64_t pattern = detail::repeated(static_cast<unsigned char>(letter));
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    const std::uint64_t found = detail::zero_bytes(detail::load_eight(text.data() + at) ^ pattern);
    if (found != 0) return at + static_cast<std::size_t>(std::countr_zero(found)) / 8;
  }
  while (at < text.size() && text[at] != letter) ++at;
  return at;
}

}  // namespace wasmline

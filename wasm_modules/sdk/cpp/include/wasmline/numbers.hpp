// Numbers from text and back, without locale: what is printed reads back as exactly the same number.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wasmline/decimal.hpp"

namespace wasmline {

template <class T>
concept Number = std::integral<T> || std::floating_point<T>;

namespace detail {

// Reads [-]digits[.digits] of up to 15 digits. Such digits and such a power of ten are exact in a double, so that one
// division rounds once, correctly (Clinger, "How to Read Floating Point Numbers Accurately", 1990).
inline std::optional<double> parse_short_decimal(std::string_view text) {
  constexpr double powers_of_ten[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::uint64_t digits = 0;
  int count = 0, decimals = 0;
  bool point = false;
  for (const char letter : text) {
    if (letter == '.' && !point) {
      point = true;
      continue;
    }
    const unsigned digit = static_cast<unsigned char>(letter) - unsigned{'0'};
    if (digit > 9 || ++count > 15) return std::nullopt;
    digits = digits * 10 + digit;
    decimals += point;
  }
  if (count == 0) return std::nullopt;
  const double magnitude = static_cast<double>(digits) / powers_of_ten[decimals];
  return negative ? -magnitude : magnitude;
}

inline constexpr std::size_t max_number_size = 32;  // characters

// Writes a small number with no decimal, or with one, and returns its end; leaves any other alone, and returns null.
inline char* write_short_decimal(char* to, double number) {
  const double tenfold = number * 10;
  const auto tenths = static_cast<std::int32_t>(std::abs(tenfold) < 100'000 ? tenfold : 0);
  if (tenths == 0 || tenths / 10.0 != number) return nullptr;
  if (tenths < 0) *to++ = '-';
  const std::int32_t magnitude = tenths < 0 ? -tenths : tenths;
  to = std::to_chars(to, to + 4, magnitude / 10).ptr;
  if (magnitude % 10 != 0) {
    *to++ = '.';
    *to++ = static_cast<char>('0' + magnitude % 10);
  }
  return to;
}

template <class T>
char* write_number(char* to, T number) {
  if constexpr (std::same_as<T, double>) {
    if (char* const end = write_short_decimal(to, number)) return end;
  }
  return std::to_chars(to, to + max_number_size, number).ptr;
}

}  // namespace detail

// Returns the number that the whole text spells, or nothing ("", " 1", "1x", out of range). Floating-point types also
// read "inf" and "nan".
template <Number T>
std::optional<T> parse(std::string_view text) {
  if constexpr (std::same_as<T, double>) {
    constexpr std::size_t most_short = 12;  // of longer ones many have too many digits
    if (text.size() <= most_short) {
      if (const auto number = detail::parse_short_decimal(text)) return number;
    }
    const char* const end = text.data() + text.size();
    detail::Decimal decimal;
    if (detail::read_decimal(text.data(), end, decimal) == end) {
      if (const auto number = detail::closest_double(decimal)) return number;
    }
  }
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Appends a number in its shortest form that reads back the same.
template <Number T>
void append_number(std::string& out, T number) {
  const std::size_t before = out.size();
  [[clang::always_inline]] out.resize_and_overwrite(before + detail::max_number_size, [&](char* begin, std::size_t) {
    return detail::write_number(begin + before, number) - begin;
  });
}

}  // namespace wasmline

// Decimal numbers as text, and the double closest to one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "wasmline/bytes.hpp"

namespace wasmline::detail {

// A number that was read: digits × 10^exponent.
struct Decimal {
  std::uint64_t digits;
  std::int32_t exponent;
  bool is_negative;
  bool is_number;  // with a digit, and without more of them than `digits` holds
  bool is_json;    // in the form of RFC 8259: digits on both sides of a point, no 0 before others
};

constexpr bool is_digit(char letter) { return '0' <= letter && letter <= '9'; }

// Returns the number that eight digits make, the first one in the lowest byte, each from 0 to 9.
constexpr std::uint64_t join_digits(std::uint64_t eight) {
  constexpr std::uint64_t pairs = 0x000000FF'000000FF;
  eight = eight * 10 + (eight >> 8);
  return ((eight & pairs) * (100 + (1'000'000ULL << 32)) + (eight >> 16 & pairs) * (1 + (10'000ULL << 32))) >> 32;
}

// Appends the digits that stand at `at` to a number, modulo 2^64, and returns their end.
inline const char* read_digits(const char* at, const char* end, std::uint64_t& number) {
  constexpr std::uint64_t powers_of_ten[] = {1, 10, 100, 1'000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000};
  while (end - at >= 8) {
    const std::uint64_t eight = load_eight(at) ^ repeated('0');
    const std::uint64_t others = (eight | (eight + repeated(0x80 - 10))) & repeated(0x80);  // the lowest mark is right
    if (others != 0) {
      const int count = std::countr_zero(others) / 8;
      number = number * powers_of_ten[count] + join_digits(eight << 8 << (56 - 8 * count));
      return at + count;
    }
    number = number * powers_of_ten[8] + join_digits(eight);
    at += 8;
  }
  for (; at != end && is_digit(*at); ++at) number = number * 10 + static_cast<unsigned>(*at - '0');
  return at;
}

// Returns how many of some digits, with or without a point, count: all behind the first that is not 0.
[[gnu::noinline]] inline std::ptrdiff_t significant_digits(const char* at, const char* end) {
  while (at != end && (*at == '0' || *at == '.')) ++at;
  const bool has_point = std::string_view(at, end).contains('.');
  return end - at - has_point;
}

// Reads e[±]digits, as much of it as there is, and returns its end.
[[gnu::noinline]] inline const char* read_exponent(const char* at, const char* end, std::int32_t& exponent) {
  const char* from = at + 1;
  const bool is_negative = from != end && *from == '-';
  if (is_negative || (from != end && *from == '+')) ++from;
  constexpr std::int32_t most = 1'000'000;  // far beyond every double
  std::int32_t read = 0;
  const char* to = from;
  for (; to != end && is_digit(*to); ++to) read = std::min(read * 10 + *to - '0', most);
  exponent += is_negative ? -read : read;
  return to == from ? at : to;
}

// Reads [-]digits[.digits][e[±]digits], as much of it as there is, and returns its end.
[[gnu::always_inline]] inline const char* read_decimal(const char* at, const char* end, Decimal& number) {
  const bool is_negative = at != end && *at == '-';
  at += is_negative;
  const char* const begin = at;
  std::uint64_t digits = 0;
  if (end - at >= 2 && is_digit(at[0]) && !is_digit(at[1])) {
    digits = static_cast<unsigned>(*at++ - '0');
  } else {
    at = read_digits(at, end, digits);
  }
  const std::ptrdiff_t whole = at - begin;
  bool is_json = whole == 1 || (whole > 1 && *begin != '0');
  std::ptrdiff_t decimals = 0;
  if (at != end && *at == '.') {
    const char* const point = at;
    at = read_digits(at + 1, end, digits);
    decimals = at - point - 1;
    is_json = is_json && decimals != 0;
  }
  constexpr int always_held = 19;
  const std::ptrdiff_t count = whole + decimals;
  number.is_number = count != 0 && (count <= always_held || significant_digits(begin, at) <= always_held);
  number.is_negative = is_negative;
  number.is_json = is_json;
  number.digits = digits;
  number.exponent = static_cast<std::int32_t>(-decimals);
  return at != end && (*at | 0x20) == 'e' ? read_exponent(at, end, number.exponent) : at;
}

constexpr int largest_exponent = 64;

// 5^-64 to 5^64: the first 64 bits of each, or a number that is one less.
constexpr auto powers_of_five = [] {
  std::array<std::uint64_t, 2 * largest_exponent + 1> powers{};
  unsigned __int128 up = static_cast<unsigned __int128>(1) << 124, down = up;
  for (int exponent = 0; exponent <= largest_exponent; ++exponent) {
    powers[largest_exponent + exponent] = static_cast<std::uint64_t>(up >> 61);
    powers[largest_exponent - exponent] = static_cast<std::uint64_t>(down >> 61);
    for (up *= 5; up >> 125 != 0;) up >>= 1;
    for (down = (down << 3) / 5; down >> 125 != 0;) down >>= 1;
  }
  return powers;
}();

// Returns the upper half of a product.
constexpr std::uint64_t high_product(std::uint64_t one, std::uint64_t other) {
  constexpr std::uint64_t low = 0xFFFF'FFFF;
  const std::uint64_t first = (one & low) * (other & low), second = (one >> 32) * (other & low) + (first >> 32);
  const std::uint64_t third = (one & low) * (other >> 32) + (second & low);
  return (one >> 32) * (other >> 32) + (second >> 32) + (third >> 32);
}

// Returns the double closest to a number, or nothing where this takes more bits than are looked at here. After Lemire,
// "Number Parsing at a Gigabyte per Second", 2021, with one multiplication: the digits times a power of five that is
// less than 2 too small, so that the product's upper half is less than 3 too small. A double has its first 53 bits. The
// others decide where they are more than half, and where they are less than half with 3 added. All results are normal.
inline std::optional<double> closest_double(const Decimal& number) {
  const int exponent = number.exponent;
  if (!number.is_number || exponent < -largest_exponent || exponent > largest_exponent) return std::nullopt;
  const std::uint64_t sign = static_cast<std::uint64_t>(number.is_negative) << 63;
  if (number.digits == 0) return std::bit_cast<double>(sign);
  const int zeros = std::countl_zero(number.digits);
  const std::uint64_t product = high_product(number.digits << zeros, powers_of_five[largest_exponent + exponent]);
  const int shift = 10 + static_cast<int>(product >> 63);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1), rest = product & (2 * half - 1);
  if (rest <= half && rest + 3 > half) return std::nullopt;
  const std::uint64_t mantissa = (product >> shift) + (rest > half);
  const int power_of_two = (exponent * 217'706 >> 16) + shift - zeros;  // 217,706 / 2^16: the logarithm of ten
  return std::bit_cast<double>(sign | ((static_cast<std::uint64_t>(power_of_two + 1'075) << 52) + mantissa));
}

}  // namespace wasmline::detail

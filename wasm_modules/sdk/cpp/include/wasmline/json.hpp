// JSON text, written compactly in the order of the calls.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "wasmline/numbers.hpp"
#include "wasmline/bytes.hpp"

namespace wasmline {

namespace detail {

// Returns the length of the UTF-8 sequence that `text` starts with (Unicode 16, table 3-7), or 0 if it is ill-formed.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t index) -> unsigned {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0;
  };
  const auto between = [&](std::size_t index, unsigned low, unsigned high) {
    return low <= byte(index) && byte(index) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (0xC2 <= lead && lead <= 0xDF) return between(1, 0x80, 0xBF) ? 2 : 0;
  if (0xE0 <= lead && lead <= 0xEF) {
    const bool second = between(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF);
    return second && between(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (0xF0 <= lead && lead <= 0xF4) {
    const bool second = between(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF);
    return second && between(2, 0x80, 0xBF) && between(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

// Whether a character stands for itself in JSON, and is ASCII.
constexpr bool is_plain(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  return 0x20 <= code && code < 0x80 && code != '"' && code != '\\';
}

// Not zero if any of eight characters is not plain.
constexpr std::uint64_t not_plain(std::uint64_t eight) {
  const std::uint64_t control = eight - repeated(0x20), quote = eight ^ repeated('"'), slash = eight ^ repeated('\\');
  return (eight | (control & ~eight) | zero_bytes(quote) | zero_bytes(slash)) & repeated(0x80);
}

// Returns how many characters at the beginning of a text are plain.
inline std::size_t plain_length(std::string_view text) {
  std::size_t at = 0;
  while (at + 8 <= text.size() && not_plain(load_eight(text.data() + at)) == 0) at += 8;
  while (at < text.size() && is_plain(text[at])) ++at;
  return at;
}

// Copies a text, and returns whether all of it is plain. Some of its characters are copied twice.
inline bool copy_plain(std::string_view text, char* to) {
  const std::size_t size = text.size();
  const char* const from = text.data();
  if (size >= 8) {
    std::uint64_t found = 0;
    const auto take = [&](std::size_t at) {
      const std::uint64_t eight = load_eight(from + at);
      found |= not_plain(eight);
      std::memcpy(to + at, &eight, 8);
    };
    for (std::size_t at = 0; at + 8 < size; at += 8) take(at);
    take(size - 8);
    return found == 0;
  }
  if (size >= 4) {
    const std::uint32_t first = load_four(from), last = load_four(from + size - 4);
    std::memcpy(to, &first, 4);
    std::memcpy(to + size - 4, &last, 4);
    return not_plain(first | std::uint64_t{last} << 32) == 0;
  }
  bool plain = true;
  for (std::size_t at = 0; at < size; ++at) {
    plain &= is_plain(from[at]);
    to[at] = from[at];
  }
  return plain;
}

// Appends `opening`, `text` and `closing`, and returns true, if all of the text is plain, as nearly all is.
inline bool append_plain(std::string& out, std::string_view opening, std::string_view text, std::string_view closing) {
  bool plain = false;
  const std::size_t before = out.size();
  const std::size_t most = before + opening.size() + text.size() + closing.size();
  // Not inlined, it would take all of these through memory.
  [[clang::always_inline]] out.resize_and_overwrite(most, [&](char* const begin, std::size_t) {
    char* const at = copy(opening, begin + before);
    plain = copy_plain(text, at);
    return plain ? copy(closing, at + text.size()) - begin : static_cast<std::ptrdiff_t>(before);
  });
  return plain;
}

inline void append_escaped(std::string& out, unsigned char byte) {
  constexpr std::string_view hex = "0123456789abcdef";
  switch (byte) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default: ((out += "\\u00") += hex[byte >> 4]) += hex[byte & 0xF];
  }
}

[[gnu::noinline]] inline void append_with_escapes(std::string& out, std::string_view text) {
  while (true) {
    const std::size_t plain = plain_length(text);
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) return;
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1) {
      append_escaped(out, static_cast<unsigned char>(text.front()));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace detail

// Appends a JSON string, between `opening` and `closing`, which hold its quotes. Bytes that are not UTF-8 become U+FFFD:
// the result is always valid JSON.
inline void append_json_string(std::string& out, std::string_view text, std::string_view opening = "\"",
                               std::string_view closing = "\"") {
  if (detail::append_plain(out, opening, text, closing)) return;
  out += opening;
  detail::append_with_escapes(out, text);
  out += closing;
}

// Builds one JSON object in a string that it empties first. Members appear in the order they are added.
class JsonObject {
 public:
  explicit JsonObject(std::string& out) : out_(out) { out_ = "{"; }

  JsonObject& add(std::string_view name, std::string_view text) {
    begin(name);
    append_json_string(out_, text);
    return *this;
  }

  // A bool becomes true or false. A number that is not finite has no JSON form and becomes null.
  template <Number T>
  JsonObject& add(std::string_view name, T number) {
    begin(name);
    if constexpr (std::same_as<T, bool>) {
      out_ += number ? "true" : "false";
    } else if (std::isfinite(number)) {
      append_number(out_, number);
    } else {
      out_ += "null";
    }
    return *this;
  }

  // Closes the object and returns its text, a view of the string it was built in.
  std::string_view close() {
    out_ += '}';
    return out_;
  }

 private:
  void begin(std::string_view name) { append_json_string(out_, name, out_.size() > 1 ? ",\"" : "\"", "\":"); }

  std::string& out_;
};

}  // namespace wasmline

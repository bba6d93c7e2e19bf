// JSON text, written compactly in the order of the calls.
#pragma once

#include <cmath>
#include <concepts>
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

// Whether any of eight characters does not stand for itself in JSON, or is not ASCII.
inline bool any_special(std::uint64_t eight) {
  const std::uint64_t control = eight - repeated(0x20), quote = eight ^ repeated('"'), slash = eight ^ repeated('\\');
  return (eight | (control & ~eight) | zero_bytes(quote) | zero_bytes(slash)) & repeated(0x80);
}

// Appends `opening`, as much of `text` as stands for itself in JSON and is ASCII, and, if that is all of it, `closing`.
// Returns how much of the text it took. Most strings are short: one growth and one pass cost less than a call per piece.
inline std::size_t append_plain(std::string& out, std::string_view opening, std::string_view text,
                                std::string_view closing) {
  std::size_t taken = 0;
  const std::size_t before = out.size();
  const std::size_t most = before + opening.size() + text.size() + closing.size();
  out.resize_and_overwrite(most, [&](char* const begin, std::size_t) {
    char* end = begin + before;
    for (const char letter : opening) *end++ = letter;
    for (; taken + 8 <= text.size(); taken += 8, end += 8) {
      const std::uint64_t eight = load_eight(text.data() + taken);
      if (any_special(eight)) break;
      std::memcpy(end, &eight, 8);
    }
    for (; taken < text.size(); ++taken) {
      const auto code = static_cast<unsigned char>(text[taken]);
      if (code < 0x20 || code >= 0x80 || code == '"' || code == '\\') return end - begin;
      *end++ = text[taken];
    }
    for (const char letter : closing) *end++ = letter;
    return end - begin;
  });
  return taken;
}

inline void append_escaped(std::string& out, unsigned char control) {
  constexpr std::string_view hex = "0123456789abcdef";
  switch (control) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default: ((out += "\\u00") += hex[control >> 4]) += hex[control & 0xF];
  }
}

}  // namespace detail

// Appends a JSON string, between `opening` and `closing`, which hold its quotes. Bytes that are not UTF-8 become U+FFFD:
// the result is always valid JSON.
inline void append_json_string(std::string& out, std::string_view text, std::string_view opening = "\"",
                               std::string_view closing = "\"") {
  std::size_t taken = detail::append_plain(out, opening, text, closing);
  while (taken < text.size()) {
    text.remove_prefix(taken);
    const std::size_t length = detail::utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1) {
      detail::append_escaped(out, static_cast<unsigned char>(text.front()));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
    taken = detail::append_plain(out, "", text, closing);
  }
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

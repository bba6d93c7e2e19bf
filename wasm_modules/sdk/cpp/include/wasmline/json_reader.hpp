// One JSON object (RFC 8259), read member by member, without a copy of it.
#pragma once

#include <bitset>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "wasmline/bytes.hpp"
#include "wasmline/numbers.hpp"

namespace wasmline {

enum class JsonKind : std::uint8_t { null, boolean, number, string, array, object };

namespace detail {

// Marks bytes that end or break a run of plain characters in a JSON string. The lowest mark is right.
constexpr std::uint64_t string_marks(std::uint64_t eight) {
  const std::uint64_t control = (eight - repeated(0x20)) & ~eight & repeated(0x80);
  return control | zero_bytes(eight ^ repeated('"')) | zero_bytes(eight ^ repeated('\\'));
}

inline void append_utf8(std::string& out, std::uint32_t code) {
  const auto tail = [&out](std::uint32_t bits) { out += static_cast<char>(0x80 | (bits & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    tail(code);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(code >> 6);
    tail(code);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(code >> 12);
    tail(code >> 6);
    tail(code);
  }
}

}  // namespace detail

// Returns the double closest to a JSON number; infinite if it is out of range.
[[gnu::noinline]] inline double json_number(std::string_view text) {
  if (const auto number = parse<double>(text)) return *number;
  return std::strtod(std::string(text).c_str(), nullptr);  // from_chars gives nothing for what rounds to 0 or infinity
}

// Reads the members of one object in the order of the text. Names and values are views of the text, or of the reader
// where they had escapes; they are valid until the next member is read.
//
//   JsonReader reader(text);
//   while (reader.next()) use(reader.name(), reader.kind(), reader.value());
//   if (!reader.valid()) reject();
//
// The text of nested arrays and objects is checked, and given as it is. Bytes that are not UTF-8 are kept.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {
    at_ = blanks(at_);
    open_ = at_ != end_ && *at_ == '{';
    failed_ = !open_;
    at_ += open_;
  }

  // Moves to the next member; false after the last one, and where the text is not JSON. It reads a member named `likely`
  // faster, a name that needs no escapes in JSON.
  bool next(std::string_view likely = {}) {
    if (!open_ || failed_) return false;
    const char* at = blanks(at_);
    if (is(at, '}')) return close(at + 1);
    if (!first_) {
      if (!is(at, ',')) return fail();
      at = blanks(at + 1);
    }
    first_ = false;
    at = name(at, likely);
    if (at == nullptr) return fail();
    at = blanks(at);
    if (!is(at, ':')) return fail();
    at = read_value(blanks(at + 1));
    if (at == nullptr) return fail();
    at_ = at;
    return true;
  }

  // True after the last member if the text was one object and nothing else.
  [[nodiscard]] bool valid() const { return !open_ && !failed_; }

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] bool is_likely() const { return is_likely_; }
  [[nodiscard]] JsonKind kind() const { return kind_; }

  // A string's characters without quotes and escapes; of any other kind the text as it is.
  [[nodiscard]] std::string_view value() const { return value_; }

  // The double closest to a number; infinite if it is out of range.
  [[nodiscard]] double number() const {
    if (const auto closest = detail::closest_double(decimal_)) return *closest;
    return json_number(value_);
  }

 private:
  static constexpr std::size_t deepest = 1000;

  bool fail() {
    failed_ = true;
    return false;
  }

  bool close(const char* at) {
    open_ = false;
    failed_ = blanks(at) != end_;
    return false;
  }

  // What follows takes the place in the text and returns the place behind what it read, or null if it is not there: a
  // place in a member would be written to memory and read back at each step.

  [[nodiscard]] bool is(const char* at, char letter) const { return at != end_ && *at == letter; }

  [[nodiscard]] const char* blanks(const char* at) const {
    const auto is_blank = [](char letter) { return letter == ' ' || letter == '\n' || letter == '\r' || letter == '\t'; };
    while (at != end_ && static_cast<unsigned char>(*at) <= ' ' && is_blank(*at)) ++at;
    return at;
  }

  const char* name(const char* at, std::string_view likely) {
    const std::size_t size = likely.size();
    is_likely_ = size != 0 && static_cast<std::size_t>(end_ - at) >= size + 2 && *at == '"' && at[size + 1] == '"' &&
                 same({at + 1, size}, likely);
    if (!is_likely_) return string(at, name_, unescaped_name_);
    name_ = {at + 1, size};
    return at + size + 2;
  }

  const char* read_value(const char* at) {
    if (at == end_) return nullptr;
    const char first = *at;
    if (first == '"') {
      kind_ = JsonKind::string;
      return string(at, value_, unescaped_value_);
    }
    const char* const end = first == '{' || first == '[' ? nested(at) : scalar(at);
    if (end != nullptr) value_ = {at, end};
    return end;
  }

  // Reads a number, true, false or null.
  const char* scalar(const char* at) {
    if (*at <= '9') return number(at);
    if (*at == 't') return literal(at, "true", JsonKind::boolean);
    if (*at == 'f') return literal(at, "false", JsonKind::boolean);
    if (*at == 'n') return literal(at, "null", JsonKind::null);
    return nullptr;
  }

  const char* number(const char* at) {
    kind_ = JsonKind::number;
    at = detail::read_decimal(at, end_, decimal_);
    return decimal_.is_json ? at : nullptr;
  }

  const char* literal(const char* at, std::string_view text, JsonKind kind) {
    kind_ = kind;
    return std::string_view(at, end_).starts_with(text) ? at + text.size() : nullptr;
  }

  const char* string(const char* at, std::string_view& out, std::string& unescaped) const {
    if (!is(at, '"')) return nullptr;
    const char* const begin = at + 1;
    at = plain(begin);
    if (!is(at, '"')) return unescape(begin, at, out, unescaped);
    out = {begin, at};
    return at + 1;
  }

  // Returns the place of the next quote, backslash or control character.
  [[nodiscard]] const char* plain(const char* at) const {
    for (; end_ - at >= 8; at += 8) {
      if (const std::uint64_t marks = detail::string_marks(detail::load_eight(at))) {
        return at + std::countr_zero(marks) / 8;
      }
    }
    while (at != end_ && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
    return at;
  }

  // Reads on from the first character of a string that is not plain.
  [[gnu::noinline]] const char* unescape(const char* begin, const char* at, std::string_view& out,
                                         std::string& unescaped) const {
    unescaped.assign(begin, at);
    while (is(at, '\\')) {
      at = escape(at + 1, unescaped);
      if (at == nullptr) return nullptr;
      const char* const from = at;
      at = plain(at);
      unescaped.append(from, at);
    }
    out = unescaped;
    return is(at, '"') ? at + 1 : nullptr;
  }

  const char* escape(const char* at, std::string& out) const {
    if (at == end_) return nullptr;
    switch (*at++) {
      case '"': out += '"'; return at;
      case '\\': out += '\\'; return at;
      case '/': out += '/'; return at;
      case 'b': out += '\b'; return at;
      case 'f': out += '\f'; return at;
      case 'n': out += '\n'; return at;
      case 'r': out += '\r'; return at;
      case 't': out += '\t'; return at;
      case 'u': return unicode(at, out);
      default: return nullptr;
    }
  }

  // Reads the four digits of an escape, and of the one behind it if the two are a surrogate pair. A surrogate without
  // its other half becomes U+FFFD.
  const char* unicode(const char* at, std::string& out) const {
    auto code = hexadecimal(at);
    if (!code) return nullptr;
    at += 4;
    const bool high = 0xD800 <= *code && *code < 0xDC00;
    if (high && std::string_view(at, end_).starts_with("\\u")) {
      const auto low = hexadecimal(at + 2);
      if (!low) return nullptr;
      if (0xDC00 <= *low && *low < 0xE000) {
        code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
        at += 6;
      }
    }
    detail::append_utf8(out, 0xD800 <= *code && *code < 0xE000 ? 0xFFFD : *code);
    return at;
  }

  [[nodiscard]] std::optional<std::uint32_t> hexadecimal(const char* at) const {
    if (end_ - at < 4) return std::nullopt;
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(at, at + 4, code, 16);
    if (error != std::errc{} || end != at + 4) return std::nullopt;
    return code;
  }

  // Checks an array or an object. Takes no stack however deep it is nested.
  [[gnu::noinline]] const char* nested(const char* at) {
    std::bitset<deepest> is_object;
    std::size_t depth = 0;
    const JsonKind kind = *at == '{' ? JsonKind::object : JsonKind::array;
    std::string_view ignored;
    do {
      at = blanks(at);
      if (at == end_) return nullptr;
      const bool begun = *at == '{' || *at == '[';
      if (begun) {
        if (depth == deepest) return nullptr;
        is_object[depth++] = *at++ == '{';
      } else {
        at = *at == '"' ? string(at, ignored, unescaped_value_) : scalar(at);
      }
      if (at != nullptr) at = next_element(at, is_object, depth, begun);
      if (at == nullptr) return nullptr;
    } while (depth > 0);
    kind_ = kind;
    return at;
  }

  // Moves from a value, or from the beginning of an array or object, to the next value, out of all that end here.
  const char* next_element(const char* at, const std::bitset<deepest>& is_object, std::size_t& depth, bool begun) {
    for (; depth > 0; begun = false) {
      const bool object = is_object[depth - 1];
      at = blanks(at);
      if (is(at, object ? '}' : ']')) {
        ++at;
        --depth;
        continue;
      }
      if (!begun) {
        if (!is(at, ',')) return nullptr;
        ++at;
      }
      return object ? member_name(at) : at;
    }
    return at;
  }

  const char* member_name(const char* at) {
    std::string_view ignored;
    at = string(blanks(at), ignored, unescaped_value_);
    if (at == nullptr) return nullptr;
    at = blanks(at);
    return is(at, ':') ? at + 1 : nullptr;
  }

  const char* at_;
  const char* end_;
  bool open_ = false, failed_ = false, first_ = true, is_likely_ = false;
  JsonKind kind_ = JsonKind::null;
  std::string_view name_, value_;
  std::string unescaped_name_, unescaped_value_;
  detail::Decimal decimal_{};
};

}  // namespace wasmline

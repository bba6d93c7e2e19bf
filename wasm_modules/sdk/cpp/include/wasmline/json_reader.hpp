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
    blanks();
    open_ = take('{');
    failed_ = !open_;
  }

  // Moves to the next member; false after the last one, and where the text is not JSON.
  bool next() {
    if (!open_ || failed_) return false;
    blanks();
    if (take('}')) return close();
    if (!first_ && !take(',')) return fail();
    first_ = false;
    blanks();
    if (!take('"') || !string(name_, unescaped_name_)) return fail();
    blanks();
    if (!take(':')) return fail();
    blanks();
    return read_value() || fail();
  }

  // True after the last member if the text was one object and nothing else.
  [[nodiscard]] bool valid() const { return !open_ && !failed_; }

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] JsonKind kind() const { return kind_; }

  // A string's characters without quotes and escapes; of any other kind the text as it is.
  [[nodiscard]] std::string_view value() const { return value_; }

 private:
  static constexpr std::size_t deepest = 1000;

  bool fail() {
    failed_ = true;
    return false;
  }

  bool close() {
    open_ = false;
    blanks();
    if (at_ != end_) failed_ = true;
    return false;
  }

  void blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  bool take(char letter) {
    if (at_ == end_ || *at_ != letter) return false;
    ++at_;
    return true;
  }

  bool read_value() {
    if (at_ == end_) return false;
    const char* const begin = at_;
    if (take('"')) {
      kind_ = JsonKind::string;
      return string(value_, unescaped_value_);
    }
    if (!(*at_ == '{' || *at_ == '[' ? nested() : scalar())) return false;
    value_ = {begin, at_};
    return true;
  }

  // Reads a number, true, false or null.
  bool scalar() {
    switch (*at_) {
      case 't': return literal("true", JsonKind::boolean);
      case 'f': return literal("false", JsonKind::boolean);
      case 'n': return literal("null", JsonKind::null);
      default: return number();
    }
  }

  bool literal(std::string_view text, JsonKind kind) {
    kind_ = kind;
    if (!std::string_view(at_, end_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  bool digits() {
    const char* const begin = at_;
    while (at_ != end_ && '0' <= *at_ && *at_ <= '9') ++at_;
    return at_ != begin;
  }

  bool number() {
    kind_ = JsonKind::number;
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  // Reads the characters of a string whose opening quote was taken, and its closing quote.
  bool string(std::string_view& out, std::string& unescaped) {
    const char* const begin = at_;
    plain();
    if (take('"')) {
      out = {begin, at_ - 1};
      return true;
    }
    unescaped.assign(begin, at_);
    while (take('\\')) {
      if (!escape(unescaped)) return false;
      const char* const from = at_;
      plain();
      unescaped.append(from, at_);
    }
    out = unescaped;
    return take('"');
  }

  // Moves to the next quote, backslash or control character.
  void plain() {
    for (; at_ + 8 <= end_; at_ += 8) {
      if (const std::uint64_t marks = detail::string_marks(detail::load_eight(at_))) {
        at_ += std::countr_zero(marks) / 8;
        return;
      }
    }
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) ++at_;
  }

  bool escape(std::string& out) {
    if (at_ == end_) return false;
    switch (*at_++) {
      case '"': out += '"'; return true;
      case '\\': out += '\\'; return true;
      case '/': out += '/'; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case 'n': out += '\n'; return true;
      case 'r': out += '\r'; return true;
      case 't': out += '\t'; return true;
      case 'u': return unicode(out);
      default: return false;
    }
  }

  // Reads the four digits of an escape, and of the one behind it if the two are a surrogate pair. A surrogate without
  // its other half becomes U+FFFD.
  bool unicode(std::string& out) {
    auto code = hexadecimal();
    if (!code) return false;
    const bool high = 0xD800 <= *code && *code < 0xDC00;
    if (high && std::string_view(at_, end_).starts_with("\\u")) {
      const char* const before = at_;
      at_ += 2;
      const auto low = hexadecimal();
      if (!low) return false;
      if (0xDC00 <= *low && *low < 0xE000) {
        code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
      } else {
        at_ = before;
      }
    }
    detail::append_utf8(out, 0xD800 <= *code && *code < 0xE000 ? 0xFFFD : *code);
    return true;
  }

  std::optional<std::uint32_t> hexadecimal() {
    if (end_ - at_ < 4) return std::nullopt;
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(at_, at_ + 4, code, 16);
    if (error != std::errc{} || end != at_ + 4) return std::nullopt;
    at_ += 4;
    return code;
  }

  // Checks an array or an object, and moves behind it. Takes no stack however deep it is nested.
  bool nested() {
    std::bitset<deepest> is_object;
    std::size_t depth = 0;
    const JsonKind kind = *at_ == '{' ? JsonKind::object : JsonKind::array;
    std::string_view ignored;
    do {
      blanks();
      if (at_ == end_) return false;
      bool begun = false;
      if (take('{') || take('[')) {
        if (depth == deepest) return false;
        is_object[depth++] = at_[-1] == '{';
        begun = true;
      } else if (take('"')) {
        if (!string(ignored, unescaped_value_)) return false;
      } else if (!scalar()) {
        return false;
      }
      if (!next_element(is_object, depth, begun)) return false;
    } while (depth > 0);
    kind_ = kind;
    return true;
  }

  // Moves from a value, or from the beginning of an array or object, to the next value, out of all that end here.
  bool next_element(const std::bitset<deepest>& is_object, std::size_t& depth, bool begun) {
    for (; depth > 0; begun = false) {
      const bool object = is_object[depth - 1];
      blanks();
      if (take(object ? '}' : ']')) {
        --depth;
        continue;
      }
      if (!begun && !take(',')) return false;
      return !object || member_name();
    }
    return true;
  }

  bool member_name() {
    std::string_view ignored;
    blanks();
    if (!take('"') || !string(ignored, unescaped_value_)) return false;
    blanks();
    return take(':');
  }

  const char* at_;
  const char* end_;
  bool open_ = false, failed_ = false, first_ = true;
  JsonKind kind_ = JsonKind::null;
  std::string_view name_, value_;
  std::string unescaped_name_, unescaped_value_;
};

// Returns the double closest to a JSON number; infinite if it is out of range.
inline double json_number(std::string_view text) {
  if (const auto number = parse<double>(text)) return *number;
  return std::strtod(std::string(text).c_str(), nullptr);  // from_chars gives nothing for what rounds to 0 or infinity
}

}  // namespace wasmline

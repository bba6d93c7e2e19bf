// One line of comma-separated values (RFC 4180), split in place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "wasmline/bytes.hpp"

namespace csv {

// Returns how many bytes A0 end the text, unless they belong to a UTF-8 character, as in "à" (C3 A0).
inline std::size_t lone_no_break_spaces(std::string_view text) {
  const std::size_t before = text.find_last_not_of('\xA0');
  if (before == std::string_view::npos) return text.size();
  const bool ascii = static_cast<unsigned char>(text[before]) < 0x80;
  return ascii ? text.size() - before - 1 : 0;
}

// Returns text without the blanks around it: ASCII white space and no-break spaces, in UTF-8 or as the lone byte A0 of
// an older encoding.
inline std::string_view trimmed(std::string_view text) {
  const auto visible = [](char letter) { return '!' <= letter && letter <= '~'; };
  if (!text.empty() && visible(text.front()) && visible(text.back())) return text;  // as nearly all fields are
  const auto blank = [](char letter) { return letter == ' ' || ('\t' <= letter && letter <= '\r'); };
  while (!text.empty()) {
    if (text.ends_with("\xC2\xA0")) {
      text.remove_suffix(2);
    } else if (blank(text.back())) {
      text.remove_suffix(1);
    } else if (const std::size_t count = lone_no_break_spaces(text)) {
      text.remove_suffix(count);
    } else {
      break;
    }
  }
  while (!text.empty()) {
    if (text.starts_with("\xC2\xA0")) {
      text.remove_prefix(2);
    } else if (blank(text.front()) || text.front() == '\xA0') {
      text.remove_prefix(1);
    } else {
      break;
    }
  }
  return text;
}

// Gives the fields of a line one by one.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {
    while (rest_.ends_with('\n') || rest_.ends_with('\r')) rest_.remove_suffix(1);
  }

  [[nodiscard]] bool more() const { return more_; }

  // Returns the next field, without quotes. `unquoted` holds its text if the field had doubled quotes inside.
  std::string_view next(std::string& unquoted) {
    return rest_.starts_with('"') ? quoted(unquoted) : plain();
  }

 private:
  std::string_view plain() {
    const std::string_view field = rest_.substr(0, wasmline::position(rest_, ','));
    advance(field.size());
    return field;
  }

  // A quote that is never closed reaches to the end of the line; text between a closing quote and the comma is kept.
  std::string_view quoted(std::string& unquoted) {
    unquoted.clear();
    bool inside = false;
    std::size_t at = 0;
    for (; at < rest_.size() && (inside || rest_[at] != ','); ++at) {
      if (rest_[at] != '"') {
        unquoted += rest_[at];
      } else if (inside && rest_.substr(at + 1).starts_with('"')) {
        unquoted += rest_[at++];
      } else {
        inside = !inside;
      }
    }
    advance(at);
    return unquoted;
  }

  void advance(std::size_t size) {
    more_ = size < rest_.size();
    rest_.remove_prefix(more_ ? size + 1 : size);
  }

  std::string_view rest_;
  bool more_ = true;
};

}  // namespace csv

// From a flat JSON object with two points to one with their distance.
#include <string>

#include "great_circle.hpp"
#include "wasmline/bytes.hpp"
#include "wasmline/transform.hpp"

namespace {

// Gives the members of a flat JSON object in order: text without its quotes, numbers as they are spelled.
class Members {
 public:
  explicit Members(std::string_view json) : rest_(json) {
    if (rest_.ends_with('}')) rest_.remove_suffix(1);
    skip('{');
  }

  bool next() {
    if (!skip('"')) return false;
    name = until('"');
    skip(':');
    const bool quoted = skip('"');
    value = until(quoted ? '"' : ',');
    if (quoted) skip(',');
    return true;
  }

  std::string_view name, value;

 private:
  bool skip(char letter) {
    const bool found = rest_.starts_with(letter);
    rest_.remove_prefix(found);
    return found;
  }

  // Takes the text before a letter, and the letter.
  std::string_view until(char letter) {
    const std::size_t size = wasmline::position(rest_, letter);
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(std::min(size + 1, rest_.size()));
    return text;
  }

  std::string_view rest_;
};

}  // namespace

int main() {
  std::string json;
  wasmline::on_record([&](const wasmline::Record& record, wasmline::Writer& writer) {
    if (!record.value) return;
    double points[4] = {};
    std::string_view id;
    for (Members members(*record.value); members.next();) {
      const auto number = [&] { return wasmline::parse<double>(members.value).value_or(0); };
      if (members.name == "id") id = members.value;
      if (members.name == "lat1") points[0] = number();
      if (members.name == "lon1") points[1] = number();
      if (members.name == "lat2") points[2] = number();
      if (members.name == "lon2") points[3] = number();
    }
    const auto value = wasmline::JsonObject(json).add("id", id).add("distance_km", great_circle_km(points)).close();
    writer.write({.key = record.key, .value = value, .headers = record.headers});
  });
}

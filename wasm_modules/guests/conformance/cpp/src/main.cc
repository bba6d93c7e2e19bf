#include <cstdlib>
#include <string>

#include "wasmline/transform.hpp"

int main() {
  const std::string_view second = wasmline::output_topic(1);
  const std::string_view greeting = std::getenv("GREETING");
  std::string text;
  wasmline::on_record([&](const wasmline::Record& record, wasmline::Writer& writer) {
    const std::string_view key = record.key.value_or("");
    if (key.starts_with("second")) return writer.write(record, second);
    if (key.starts_with("drop")) return;
    if (key.starts_with("log")) return wasmline::log(record.value.value_or(""));
    if (key.starts_with("time")) {
      text.clear();
      wasmline::append_number(text, record.timestamp);
      return writer.write({.key = record.key, .value = text, .headers = record.headers});
    }
    if (key.starts_with("env")) return writer.write({.key = record.key, .value = greeting, .headers = record.headers});
    writer.write(record);
    if (key.starts_with("twice")) writer.write(record);
    if (key.starts_with("fail")) wasmline::fail("on purpose");
  });
}

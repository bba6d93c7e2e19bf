// Passes records on with their value in upper case, and leaves out those without a value.
#include "wasmline/transform.hpp"

#include <cctype>
#include <string>

int main() {
  std::string shouted;
  wasmline::on_record([&](const wasmline::Record& record, wasmline::Writer& writer) {
    if (!record.value) return;
    shouted.clear();
    for (const unsigned char letter : *record.value) shouted += static_cast<char>(std::toupper(letter));
    writer.write({.key = record.key, .value = shouted, .headers = record.headers});
  });
}

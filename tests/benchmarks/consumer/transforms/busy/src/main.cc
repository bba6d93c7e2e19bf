// Computes for some hundred microseconds a record, and writes what came out.
#include <cstdint>
#include <string_view>

#include "wasmline/transform.hpp"

int main() {
  wasmline::on_record([](const wasmline::Record& record, wasmline::Writer& writer) {
    std::uint64_t mixed = record.value ? record.value->size() : 0;
    for (int round = 0; round < 50'000; ++round) mixed = (mixed ^ mixed >> 29) * 0x9E3779B97F4A7C15u + 1;
    const std::string_view value(reinterpret_cast<const char*>(&mixed), sizeof mixed);
    writer.write({.key = record.key, .value = value});
  });
}

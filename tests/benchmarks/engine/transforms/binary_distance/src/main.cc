// From four doubles in a value's first 32 bytes to their distance, one double.
#include <cstring>

#include "great_circle.hpp"
#include "wasmline/transform.hpp"

int main() {
  wasmline::on_record([](const wasmline::Record& record, wasmline::Writer& writer) {
    double points[4];
    if (!record.value || record.value->size() < sizeof points) return;
    std::memcpy(points, record.value->data(), sizeof points);
    const double distance = great_circle_km(points);
    const std::string_view value(reinterpret_cast<const char*>(&distance), sizeof distance);
    writer.write({.key = record.key, .value = value, .headers = record.headers});
  });
}

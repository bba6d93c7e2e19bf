// Keeps the records whose value starts with a "k".
#include "wasmline/transform.hpp"

int main() {
  wasmline::on_record([](const wasmline::Record& record, wasmline::Writer& writer) {
    if (record.value && record.value->starts_with('k')) writer.write(record);
  });
}

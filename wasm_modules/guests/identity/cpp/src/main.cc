// Gives every record back.
#include "wasmline/transform.hpp"

int main() {
  wasmline::on_record([](const wasmline::Record& record, wasmline::Writer& writer) { writer.write(record); });
}

// Predicts from JSON records with the model that was put into the module. A record that breaks the model's contract goes
// to the second output topic as it came, with the reason in a header.
#include <string>

#include "load_model.hpp"
#include "record_reader.hpp"
#include "trees.hpp"
#include "wasmline/transform.hpp"

int main() {
  const std::string_view rejected = wasmline::output_topic(1);
  const Model model = load_model();
  RecordReader reader(model);
  static Inputs inputs;
  std::string identity, json;
  const std::string identity_name = [&] {
    std::string text;
    wasmline::append_json_string(text, model.name(model.fields[0]));
    return text;
  }();
  wasmline::on_record([&](const wasmline::Record& record, wasmline::Writer& writer) {
    if (!record.value) return writer.reject(record, "null value", rejected);
    if (!reader.read(*record.value, inputs, identity)) return writer.reject(record, reader.reason(), rejected);
    ((json = "{") += identity_name) += ':';
    (json += identity) += ",\"prediction\":";
    wasmline::append_number(json, predict(model, inputs));
    json += '}';
    writer.write({.key = record.key, .value = json});
  });
}

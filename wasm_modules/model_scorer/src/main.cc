// Predicts from JSON records with the model that was put into the module. A record that breaks the model's contract goes
// to the second output topic as it came, with the reason in a header.
#include <string>

#include "model.hpp"
#include "record_reader.hpp"
#include "trees.hpp"
#include "wasmline/transform.hpp"

namespace {

volatile ModelLocation model_location{
    .mark = {'w', 'a', 's', 'm', 'l', 'i', 'n', 'e', ':', 'm', 'o', 'd', 'e', 'l', '@', '>'},
    .address = 0xFFFF'FFFF,
    .size = 0xFFFF'FFFF,
};

Model load_model() {
  const auto* const data = reinterpret_cast<const char*>(std::uintptr_t{model_location.address});
  if (model_location.address == 0xFFFF'FFFF || std::string_view(data, Model::magic.size()) != Model::magic) {
    wasmline::fail("model-scorer: the module has no model: use `wasmline models compile`");
  }
  return Model(data);
}

}  // namespace

int main() {
  const std::string_view rejected = wasmline::output_topic(1);
  const Model model = load_model();
  RecordReader reader(model);
  Inputs inputs;
  std::string identity, json;
  const std::string identity_name = [&] {
    std::string text;
    wasmline::append_json_string(text, model.name(model.fields[0]));
    return text;
  }();
  wasmline::on_record([&](const wasmline::Record& record, wasmline::Writer& writer) {
    if (!record.value) return writer.reject(record, "null value", rejected);
    if (const auto reason = reader.read(*record.value, inputs, identity)) {
      return writer.reject(record, *reason, rejected);
    }
    ((json = "{") += identity_name) += ':';
    (json += identity) += ",\"prediction\":";
    wasmline::append_number(json, static_cast<double>(predict(model, inputs)));
    json += '}';
    writer.write({.key = record.key, .value = json});
  });
}

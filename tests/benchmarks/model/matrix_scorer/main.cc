// The scorer without records: predicts from rows of columns in single precision, NaN where a value is missing, as
// XGBoost's matrix has them.
#include <cmath>
#include <cstring>
#include <string>

#include "load_model.hpp"
#include "trees.hpp"
#include "wasmline/transform.hpp"

int main() {
  const Model model = load_model();
  const std::size_t row_bytes = sizeof(float) * model.header.column_count;
  static Inputs inputs;
  std::string predictions;
  wasmline::on_record([&](const wasmline::Record& record, wasmline::Writer& writer) {
    predictions.clear();
    const std::string_view rows = *record.value;
    for (std::size_t row = 0; row < rows.size(); row += row_bytes) {
      for (std::uint32_t column = 0; column < model.header.column_count; ++column) {
        float value;
        std::memcpy(&value, rows.data() + row + sizeof value * column, sizeof value);
        std::isnan(value) ? inputs.set_missing(column) : inputs.set(column, value);
      }
      const float prediction = predict(model, inputs);
      predictions.append(reinterpret_cast<const char*>(&prediction), sizeof prediction);
    }
    writer.write({.value = predictions});
  });
}

// Trees as code that tl2cgen generated, in place of the walk.
#pragma once

#include <array>
#include <cstdint>

#include "model.hpp"

union Entry {
  int missing;
  float fvalue;
  int qvalue;
};

void predict(union Entry* data, int pred_margin, float* result);  // generated.cc

// -1 stands for a value that is missing.
class Inputs {
 public:
  void set(std::uint32_t column, float value) { entries_[column].fvalue = value; }
  void set_missing(std::uint32_t column) { entries_[column].missing = -1; }
  Entry* data() { return entries_.data(); }

 private:
  std::array<Entry, Model::max_columns> entries_{};
};

inline float predict(const Model& model, Inputs& inputs) {
  float sum = model.header.base_score;
  predict(inputs.data(), 1, &sum);
  return sum;
}

// Walks trees, eight side by side: each step of a walk waits for the one before, and eight of them for each other's memory.
#pragma once

#include <array>
#include <cstdint>

#include "model.hpp"

// The inputs of splits: input 0 is not a number; each column has two, which differ where its value is missing: the first
// is not a number then, which goes left at every split, the second is infinite, which goes right.
class Inputs {
 public:
  Inputs() { values_[0] = __builtin_nanf(""); }

  void set(std::uint32_t column, float value) { values_[2 * column + 1] = values_[2 * column + 2] = value; }

  void set_missing(std::uint32_t column) {
    values_[2 * column + 1] = __builtin_nanf("");
    values_[2 * column + 2] = __builtin_inff();
  }

  [[nodiscard]] const float* data() const { return values_.data(); }

 private:
  std::array<float, 1 << Model::input_bits> values_;
};

namespace detail {

template <std::uint32_t count>
float add_group(float sum, const Model& model, const TreeGroup& group, const float* inputs) {
  std::array<std::uint32_t, count> at;
  for (std::uint32_t tree = 0; tree < count; ++tree) at[tree] = model.roots[group.first_root + tree];
  for (std::uint32_t step = 0; step < group.depth; ++step) {
    for (std::uint32_t tree = 0; tree < count; ++tree) {
      const Node node = model.nodes[at[tree]];
      const float input = inputs[node.link & ((1 << Model::input_bits) - 1)];
      at[tree] = (node.link >> Model::input_bits) + (input >= node.value);
    }
  }
  for (const std::uint32_t leaf : at) sum += model.nodes[leaf].value;
  return sum;
}

}  // namespace detail

// Returns the prediction, in the order of additions of XGBoost's CPU predictor: base score first, then tree by tree, in
// single precision.
inline float predict(const Model& model, const Inputs& inputs) {
  float sum = model.header.base_score;
  for (std::uint32_t index = 0; index < model.header.group_count; ++index) {
    const TreeGroup& group = model.groups[index];
    sum = group.count == 8 ? detail::add_group<8>(sum, model, group, inputs.data())
                           : detail::add_group<1>(sum, model, group, inputs.data());
  }
  return sum;
}

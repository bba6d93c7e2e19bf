// Walks trees, some side by side: a step of a walk waits for the one before, and meanwhile the others go on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model.hpp"

// The inputs of splits: input 0 is not a number; each column has two, which differ where its value is missing: the first
// is not a number then, which goes left at every split, the second is infinite, which goes right.
class Inputs {
 public:
  constexpr Inputs() { values_[0] = __builtin_nanf(""); }

  void set(std::uint32_t column, float value) { values_[2 * column + 1] = values_[2 * column + 2] = value; }

  void set_missing(std::uint32_t column) {
    values_[2 * column + 1] = __builtin_nanf("");
    values_[2 * column + 2] = __builtin_inff();
  }

  [[nodiscard]] const char* data() const { return reinterpret_cast<const char*>(values_.data()); }

 private:
  std::array<float, 1 + 2 * Model::max_columns> values_{};
};

namespace detail {

template <class T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The walks' places are in memory, at a fixed address, and volatile: of places in registers the engine's compiler spills
// most, each with what else it keeps of that walk.
inline float add_group(float sum, const Model& model, const TreeGroup& group, const char* inputs) {
  static const char* volatile at[Model::group_trees];
  for (std::uint32_t tree = 0; tree < Model::group_trees; ++tree) at[tree] = model.nodes + group.roots[tree];
  for (std::uint32_t step = 0; step < group.depth; ++step) {
#pragma unroll
    for (std::uint32_t tree = 0; tree < Model::group_trees; ++tree) {
      const char* const node = at[tree];
      const auto input = load<float>(inputs + load<std::uint32_t>(node + offsetof(NodePair, input)));
      const bool is_right = input >= load<float>(node);
      at[tree] = node + load<std::uint32_t>(node + offsetof(NodePair, left)) + is_right * sizeof(float);
    }
  }
  for (std::uint32_t tree = 0; tree < group.count; ++tree) sum += load<float>(at[tree]);
  return sum;
}

}  // namespace detail

// Returns the prediction, in the order of additions of XGBoost's CPU predictor: base score first, then tree by tree, in
// single precision.
inline float predict(const Model& model, const Inputs& inputs) {
  float sum = model.header.base_score;
  for (std::uint32_t index = 0; index < model.header.group_count; ++index) {
    sum = detail::add_group(sum, model, model.groups[index], inputs.data());
  }
  return sum;
}

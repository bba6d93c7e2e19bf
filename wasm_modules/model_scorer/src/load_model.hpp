// Finds the model that was put into the module.
#pragma once

#include <cstdint>
#include <string_view>

#include "model.hpp"
#include "wasmline/log.hpp"

namespace detail {

inline volatile ModelLocation model_location{
    .mark = {'w', 'a', 's', 'm', 'l', 'i', 'n', 'e', ':', 'm', 'o', 'd', 'e', 'l', '@', '>'},
    .address = 0xFFFF'FFFF,
    .size = 0xFFFF'FFFF,
};

}  // namespace detail

inline Model load_model() {
  const auto* const data = reinterpret_cast<const char*>(std::uintptr_t{detail::model_location.address});
  if (detail::model_location.address == 0xFFFF'FFFF || std::string_view(data, Model::magic.size()) != Model::magic) {
    wasmline::fail("model-scorer: the module has no model: use `wasmline models compile`");
  }
  return Model(data);
}

// Reads the inputs of a model from a JSON record. What breaks the model's contract is named in a sentence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model.hpp"
#include "trees.hpp"
#include "wasmline/json.hpp"
#include "wasmline/json_reader.hpp"

class RecordReader {
 public:
  explicit RecordReader(const Model& model) : model_(model), seen_(model.header.field_count) {
    for (std::uint32_t index = 0; index < model.header.field_count; ++index) by_name_.push_back(index);
    std::ranges::sort(by_name_, {}, [this](std::uint32_t index) { return name(index); });
  }

  // Returns why a record breaks the contract, or nothing and has filled `inputs`, and `identity` with the JSON text of the
  // record's identity. A member that is there twice counts once, as its last value.
  std::optional<std::string> read(std::string_view json, Inputs& inputs, std::string& identity) {
    std::ranges::fill(seen_, false);
    wasmline::JsonReader reader(json);
    for (std::size_t position = 0; reader.next(); ++position) {
      const auto index = find(reader.name(), position);
      if (!index) continue;
      seen_[*index] = reader.kind() != wasmline::JsonKind::null;
      if (!seen_[*index]) continue;
      const auto reason = *index == 0 ? take_identity(reader, identity) : take(*index, reader, inputs);
      if (reason) return reason;
    }
    if (!reader.valid()) return "not a JSON object";
    for (std::uint32_t index = 0; index < seen_.size(); ++index) {
      if (seen_[index]) continue;
      const Field& field = model_.fields[index];
      if (field.is_required) return std::string("missing: ") += name(index);
      for (std::uint32_t column = 0; column < columns(field); ++column) inputs.set_missing(field.first_column + column);
    }
    return std::nullopt;
  }

 private:
  using Reason = std::optional<std::string>;

  static constexpr std::uint32_t none = ~std::uint32_t{0};

  [[nodiscard]] std::string_view name(std::uint32_t index) const { return model_.name(model_.fields[index]); }

  static std::uint32_t columns(const Field& field) {
    return field.type == FieldType::text ? field.category_count : 1;
  }

  // Returns the index of a field. Records of a topic have their members in one order: the last one's is tried first.
  std::optional<std::uint32_t> find(std::string_view wanted, std::size_t position) {
    if (position == order_.size()) order_.push_back(none);
    if (const std::uint32_t index = order_[position]; index != none && name(index) == wanted) return index;
    const auto place = std::ranges::lower_bound(by_name_, wanted, {}, [this](auto index) { return name(index); });
    if (place == by_name_.end() || name(*place) != wanted) return std::nullopt;
    return order_[position] = *place;
  }

  Reason take_identity(const wasmline::JsonReader& reader, std::string& identity) const {
    identity.clear();
    if (model_.fields[0].type == FieldType::text) {
      if (reader.kind() != wasmline::JsonKind::string) return wrong_type(0, "a text");
      wasmline::append_json_string(identity, reader.value());
    } else {
      if (reader.kind() != wasmline::JsonKind::number) return wrong_type(0, "a number");
      identity = reader.value();
    }
    return std::nullopt;
  }

  Reason take(std::uint32_t index, const wasmline::JsonReader& reader, Inputs& inputs) const {
    const Field& field = model_.fields[index];
    if (field.type == FieldType::text) {
      if (reader.kind() != wasmline::JsonKind::string) return wrong_type(index, "a text");
      for (std::uint32_t each = 0; each < field.category_count; ++each) {
        const bool is_it = model_.name(model_.categories[field.first_category + each]) == reader.value();
        inputs.set(field.first_column + each, is_it ? 1.0F : 0.0F);
      }
      return std::nullopt;
    }
    if (reader.kind() != wasmline::JsonKind::number) return wrong_type(index, "a number");
    double number = 0;
    if (field.type == FieldType::integer) {
      const auto integer = wasmline::parse<std::int64_t>(reader.value());
      if (!integer) return wrong_type(index, "an integer of 64 bits");
      number = static_cast<double>(*integer);
    } else {
      number = wasmline::json_number(reader.value());
    }
    const auto value = static_cast<float>(number);
    if (!std::isfinite(value)) return (std::string("out of range: ") += name(index)) += " in single precision";
    inputs.set(field.first_column, value);
    return std::nullopt;
  }

  [[nodiscard]] Reason wrong_type(std::uint32_t index, std::string_view wanted) const {
    return ((std::string("wrong type: ") += name(index)) += " is not ") += wanted;
  }

  const Model& model_;
  std::vector<std::uint32_t> by_name_, order_;
  std::vector<char> seen_;
};

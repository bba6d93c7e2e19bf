// Reads the inputs of a model from a JSON record. What breaks the model's contract is named in a sentence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
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

  // Fills `inputs`, and `identity` with the JSON text of the record's identity; false if the record breaks the contract.
  // A member that is there twice counts once, as its last value.
  bool read(std::string_view json, Inputs& inputs, std::string& identity) {
    std::ranges::fill(seen_, false);
    wasmline::JsonReader reader(json);
    for (std::size_t position = 0; reader.next(likely(position)); ++position) {
      const std::uint32_t index = reader.is_likely() ? order_[position].index : find(reader.name(), position);
      if (index == none) continue;
      seen_[index] = reader.kind() != wasmline::JsonKind::null;
      if (seen_[index] && !(index == 0 ? take_identity(reader, identity) : take(index, reader, inputs))) return false;
    }
    if (!reader.valid()) return fail("not a JSON object");
    for (std::uint32_t index = 0; index < seen_.size(); ++index) {
      if (seen_[index]) continue;
      const Field& field = model_.fields[index];
      if (field.is_required) return fail("missing: ", name(index));
      for (std::uint32_t column = 0; column < columns(field); ++column) inputs.set_missing(field.first_column + column);
    }
    return true;
  }

  // Returns why the last record breaks the contract.
  [[nodiscard]] std::string_view reason() const { return reason_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // A member of the last record. Its name is empty where it needs escapes in JSON.
  struct Member {
    std::string_view name;
    std::uint32_t index = none;
    std::unique_ptr<char[]> copy;  // of the name
  };

  [[nodiscard]] std::string_view name(std::uint32_t index) const { return model_.name(model_.fields[index]); }

  static std::uint32_t columns(const Field& field) {
    return field.type == FieldType::text ? field.category_count : 1;
  }

  // Returns the name that the last record had at a position: records of a topic have their members in one order.
  std::string_view likely(std::size_t position) {
    if (position == order_.size()) order_.emplace_back();
    return order_[position].name;
  }

  // Returns the index of a field, or none.
  std::uint32_t find(std::string_view wanted, std::size_t position) {
    const auto place = std::ranges::lower_bound(by_name_, wanted, {}, [this](auto index) { return name(index); });
    const std::uint32_t index = place != by_name_.end() && name(*place) == wanted ? *place : none;
    auto& [name, its, copy] = order_[position];
    its = index;
    copy = is_plain(wanted) ? std::make_unique_for_overwrite<char[]>(wanted.size()) : nullptr;
    name = copy ? std::string_view(copy.get(), wanted.copy(copy.get(), wanted.size())) : std::string_view();
    return index;
  }

  static bool is_plain(std::string_view name) {
    std::string text;
    wasmline::append_json_string(text, name);
    return text.size() == name.size() + 2;
  }

  bool take_identity(const wasmline::JsonReader& reader, std::string& identity) {
    identity.clear();
    if (model_.fields[0].type == FieldType::text) {
      if (reader.kind() != wasmline::JsonKind::string) return wrong_type(0, "a text");
      wasmline::append_json_string(identity, reader.value());
    } else {
      if (reader.kind() != wasmline::JsonKind::number) return wrong_type(0, "a number");
      identity = reader.value();
    }
    return true;
  }

  bool take(std::uint32_t index, const wasmline::JsonReader& reader, Inputs& inputs) {
    const Field& field = model_.fields[index];
    if (field.type == FieldType::text) {
      if (reader.kind() != wasmline::JsonKind::string) return wrong_type(index, "a text");
      for (std::uint32_t each = 0; each < field.category_count; ++each) {
        const Category& category = model_.categories[field.first_category + each];
        inputs.set(field.first_column + each, wasmline::same(model_.name(category), reader.value()) ? 1.0F : 0.0F);
      }
      return true;
    }
    if (reader.kind() != wasmline::JsonKind::number) return wrong_type(index, "a number");
    double number = 0;
    if (field.type == FieldType::integer) {
      const auto integer = wasmline::parse<std::int64_t>(reader.value());
      if (!integer) return wrong_type(index, "an integer of 64 bits");
      number = static_cast<double>(*integer);
    } else {
      number = reader.number();
    }
    const auto value = static_cast<float>(number);
    if (!std::isfinite(value)) return fail("out of range: ", name(index), " in single precision");
    inputs.set(field.first_column, value);
    return true;
  }

  bool wrong_type(std::uint32_t index, std::string_view wanted) {
    fail("wrong type: ", name(index), " is not ");
    reason_ += wanted;
    return false;
  }

  [[gnu::noinline]] bool fail(std::string_view what, std::string_view name = "", std::string_view more = "") {
    ((reason_ = what) += name) += more;
    return false;
  }

  const Model& model_;
  std::vector<std::uint32_t> by_name_;
  std::vector<Member> order_;
  std::vector<char> seen_;
  std::string reason_;
};

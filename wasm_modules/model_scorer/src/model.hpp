// A model as bytes: what a record has to contain, and gradient-boosted trees. Written by wasmline.training.model_data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

// The place of the model in memory. Wasmline writes it into the built module, beside the model's own data segment.
struct ModelLocation {
  char mark[16];
  std::uint32_t address;
  std::uint32_t size;
};

enum class FieldType : std::uint32_t { number, integer, text };

// One field of a record. A number has one column, a text one for each of its `categories`.
struct Field {
  std::uint32_t name, name_size;  // the offset in the model's text
  FieldType type;
  std::uint32_t is_required;
  std::uint32_t first_column;
  std::uint32_t first_category, category_count;
};

struct Category {
  std::uint32_t name, name_size;
};

// Trees that are walked side by side, in `depth` steps: `count` of them, and further walks that count for nothing. Roots
// are places of nodes, in bytes.
struct TreeGroup {
  std::uint32_t count, depth, roots[20];
};

// Two nodes side by side: the children of a split, or a root and nothing. A record goes right if the input of a split is
// at least `value`. `input` is the place of the input and `left` the way to the left child, in bytes; the right one is
// behind it. A leaf is its own left child, its input is 0, `value` its score.
struct NodePair {
  float value[2];
  std::uint32_t input[2], left[2];
};

struct ModelHeader {
  char magic[8];
  std::uint32_t field_count, category_count, column_count, group_count, pair_count, text_size;
  float base_score;
};

// The parts of a model. The first field is the record's identity; it has no column.
class Model {
 public:
  static constexpr std::string_view magic = "WLTREES2";
  static constexpr std::uint32_t max_columns = 2047;
  static constexpr std::uint32_t group_trees = std::extent_v<decltype(TreeGroup::roots)>;

  explicit Model(const char* data) {
    std::memcpy(&header, data, sizeof header);
    const char* at = data + sizeof header;
    fields = part<Field>(at, header.field_count);
    categories = part<Category>(at, header.category_count);
    groups = part<TreeGroup>(at, header.group_count);
    nodes = at;
    at += header.pair_count * sizeof(NodePair);
    text_ = at;
  }

  [[nodiscard]] std::string_view name(const Field& field) const { return {text_ + field.name, field.name_size}; }
  [[nodiscard]] std::string_view name(const Category& one) const { return {text_ + one.name, one.name_size}; }

  ModelHeader header;
  const Field* fields;
  const Category* categories;
  const TreeGroup* groups;
  const char* nodes;

 private:
  template <class T>
  static const T* part(const char*& at, std::size_t count) {
    const auto* const begin = reinterpret_cast<const T*>(at);
    at += count * sizeof(T);
    return begin;
  }

  const char* text_;
};

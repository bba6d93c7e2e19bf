// A delivery as it is recorded: one CSV line of eleven columns. What breaks that contract is named in a sentence. The time
// of a delivery that is under way is empty, and NaN here.
#pragma once

#include <array>
#include <cmath>
#include <expected>
#include <limits>
#include <string>
#include <string_view>

#include "csv.hpp"
#include "wasmline/json.hpp"
#include "wasmline/numbers.hpp"

struct Delivery {
  std::string_view id, driver, order_type, vehicle;
  double age = 0, rating = 0, time_min = 0;
  double restaurant_latitude = 0, restaurant_longitude = 0, destination_latitude = 0, destination_longitude = 0;
};

// Reads deliveries. Their text belongs to the reader and the line, and is valid until the next one is read.
class DeliveryReader {
 public:
  // Returns the delivery, or why the line is none: too few or too many columns, a number that is no finite number, or a
  // negative coordinate. The service area lies north-east of (0, 0): there a sign was flipped on the way.
  std::expected<Delivery, std::string> read(std::string_view line) {
    if (const std::size_t count = split(line); count != columns) {
      std::string reason = "wrong number of columns: ";
      wasmline::append_number(reason, count);
      return std::unexpected(reason += " instead of 11");
    }
    Delivery delivery{.id = fields_[0], .driver = fields_[1], .order_type = fields_[8], .vehicle = fields_[9]};
    for (const Column& column : numbers) {
      const std::string_view text = fields_[column.index];
      if (column.optional && text.empty()) {
        delivery.*column.member = std::numeric_limits<double>::quiet_NaN();
        continue;
      }
      const auto number = wasmline::parse<double>(text);
      if (!number) return unexpected("not a number", column, quoted(text));
      if (!std::isfinite(*number)) return unexpected("not finite", column, text);
      if (column.coordinate && *number < 0) return unexpected("flipped sign", column, text);
      delivery.*column.member = *number;
    }
    return delivery;
  }

 private:
  struct Column {
    std::size_t index;
    std::string_view name;
    double Delivery::* member;
    bool coordinate;
    bool optional;
  };

  static constexpr std::size_t columns = 11;
  static constexpr std::array<Column, 7> numbers{{
      {2, "delivery_person_age", &Delivery::age, false, false},
      {3, "delivery_person_ratings", &Delivery::rating, false, false},
      {4, "restaurant_latitude", &Delivery::restaurant_latitude, true, false},
      {5, "restaurant_longitude", &Delivery::restaurant_longitude, true, false},
      {6, "delivery_location_latitude", &Delivery::destination_latitude, true, false},
      {7, "delivery_location_longitude", &Delivery::destination_longitude, true, false},
      {10, "time_taken(min)", &Delivery::time_min, false, true},
  }};

  // Fills the fields and returns how many the line has, which may be more than are kept.
  std::size_t split(std::string_view line) {
    csv::Fields fields(line);
    std::size_t count = 0;
    std::string beyond;
    for (; fields.more(); ++count) {
      const bool kept = count < columns;
      const std::string_view field = fields.next(kept ? unquoted_[count] : beyond);
      if (kept) fields_[count] = csv::trimmed(field);
    }
    return count;
  }

  // A reason's category comes first, before the colon: dead letters are counted by it.
  static std::unexpected<std::string> unexpected(std::string_view category, const Column& column,
                                                 std::string_view text) {
    std::string reason(category);
    (((reason += ": ") += column.name) += " is ") += text;
    return std::unexpected(std::move(reason));
  }

  // Returns the beginning of whatever stands where a number should.
  static std::string quoted(std::string_view text) {
    std::string out;
    wasmline::append_json_string(out, text.substr(0, 40));
    return out;
  }

  std::array<std::string_view, columns> fields_;
  std::array<std::string, columns> unquoted_;
};

// Turns raw delivery records into features for the delivery-time model. A record that breaks the contract goes to the
// second output topic as it came, with the reason in a header.
#include <string>

#include "delivery.hpp"
#include "great_circle.hpp"
#include "wasmline/transform.hpp"

namespace {

std::string_view features(const Delivery& delivery, std::string& json) {
  const double distance = great_circle_km(delivery.restaurant_latitude, delivery.restaurant_longitude,
                                          delivery.destination_latitude, delivery.destination_longitude);
  return wasmline::JsonObject(json)
      .add("id", delivery.id)
      .add("driver", delivery.driver)
      .add("age", delivery.age)
      .add("rating", delivery.rating)
      .add("distance_km", distance)
      .add("order_type", delivery.order_type)
      .add("vehicle", delivery.vehicle)
      .add("time_min", delivery.time_min)
      .close();
}

}  // namespace

int main() {
  const std::string_view rejected = wasmline::output_topic(1);
  DeliveryReader reader;
  std::string json;
  wasmline::on_record([&](const wasmline::Record& record, wasmline::Writer& writer) {
    if (!record.value) return writer.reject(record, "null value", rejected);
    const auto delivery = reader.read(*record.value);
    if (!delivery) return writer.reject(record, delivery.error(), rejected);
    writer.write({.key = record.key, .value = features(*delivery, json)});
  });
}

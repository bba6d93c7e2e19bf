// The haversine formula, on a sphere of the earth's mean radius.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

// Returns kilometres between two points: latitude, longitude, latitude, longitude, in degrees.
inline double great_circle_km(const double (&points)[4]) {
  constexpr double radians = std::numbers::pi / 180;
  const auto [latitude1, longitude1, latitude2, longitude2] = points;
  const double a = std::sin((latitude2 - latitude1) * radians / 2);
  const double b = std::sin((longitude2 - longitude1) * radians / 2);
  const double h = a * a + std::cos(latitude1 * radians) * std::cos(latitude2 * radians) * b * b;
  return 2 * 6371.0088 * std::asin(std::sqrt(std::min(1.0, h)));
}

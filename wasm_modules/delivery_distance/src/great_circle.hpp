// Distance along the surface of a spherical earth.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

// The mean radius of the earth in kilometres: (2a + b) / 3 of the GRS 80 ellipsoid, as adopted by the IUGG.
inline constexpr double earth_radius_km = 6371.0088;

// Returns kilometres between two points in degrees, by the haversine formula: exact to rounding for small distances,
// where the law of cosines is not.
inline double great_circle_km(double latitude1, double longitude1, double latitude2, double longitude2) {
  constexpr double radians = std::numbers::pi / 180;
  const double half_latitude = std::sin((latitude2 - latitude1) * radians / 2);
  const double half_longitude = std::sin((longitude2 - longitude1) * radians / 2);
  const double haversine = half_latitude * half_latitude + std::cos(latitude1 * radians) *
                                                               std::cos(latitude2 * radians) * half_longitude *
                                                               half_longitude;
  return 2 * earth_radius_km * std::asin(std::sqrt(std::min(1.0, haversine)));
}

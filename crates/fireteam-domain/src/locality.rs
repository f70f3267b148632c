//! Locality: a session's position as a point in Cartesian miles on a sphere of radius 4000, the form that scoring
//! needs.
//!
//! A distance between two latitude/longitude pairs costs six trigonometric calls. Between two Cartesian points it costs
//! three multiplications. Coordinates are converted once, when a request arrives.

/// Radius of the sphere, miles (Villegas, chapter 3: "which is the radius of Earth in miles"). Earth's mean radius is
/// 3958.8 miles. Only the order of distances matters, so the thesis's value is used.
pub const EARTH_RADIUS_MILES: f64 = 4000.0;

/// Kilometers per statute mile.
pub const KM_PER_MILE: f64 = 1.609_344;

/// Maximum distance of two localities: the diameter of the sphere, miles.
pub const CHORD_MILES_MAX: f64 = 2.0 * EARTH_RADIUS_MILES;

/// Default grid cell size for geolocated positions, degrees. Compared with measured round trips, the rounding costs
/// almost no accuracy (docs/BENCHMARKS.md).
pub const DEFAULT_LOCATION_GRID_DEGREES: f64 = 1.0;

/// Point in Cartesian miles, computed in f64 and stored as f32. An unknown position is `None`, never the center of the
/// sphere, which would have the same distance to every session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locality {
    /// Towards latitude 0, longitude 0; miles.
    pub x: f32,
    /// Towards latitude 0, longitude 90 east; miles.
    pub y: f32,
    /// Towards the north pole; miles.
    pub z: f32,
}

impl Locality {
    /// Converts degrees: latitude north in [-90, 90], longitude east in [-180, 180]. `None` outside these ranges and
    /// for NaN.
    pub fn from_degrees(latitude: f64, longitude: f64) -> Option<Self> {
        if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
            return None;
        }
        let (sin_lat, cos_lat) = latitude.to_radians().sin_cos();
        let (sin_lon, cos_lon) = longitude.to_radians().sin_cos();
        Some(Self {
            x: (EARTH_RADIUS_MILES * cos_lat * cos_lon) as f32,
            y: (EARTH_RADIUS_MILES * cos_lat * sin_lon) as f32,
            z: (EARTH_RADIUS_MILES * sin_lat) as f32,
        })
    }

    /// Accepts a point computed elsewhere if it is within 5 miles of the sphere's surface; `None` otherwise. The
    /// example printed in the thesis is off by a third of a mile.
    pub fn from_xyz_miles(x: f32, y: f32, z: f32) -> Option<Self> {
        let norm = (f64::from(x).powi(2) + f64::from(y).powi(2) + f64::from(z).powi(2)).sqrt();
        ((norm - EARTH_RADIUS_MILES).abs() <= 5.0).then_some(Self { x, y, z })
    }

    /// Latitude north and longitude east, degrees: the inverse of [`Locality::from_degrees`], up to rounding.
    pub fn to_degrees(self) -> (f64, f64) {
        let (x, y, z) = (f64::from(self.x), f64::from(self.y), f64::from(self.z));
        (z.atan2(x.hypot(y)).to_degrees(), y.atan2(x).to_degrees())
    }

    /// Point on the sphere in the direction of the mean of `places`. `None` if there are none, or if they cancel out,
    /// such as two antipodes.
    pub fn midpoint(places: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut sum = [0.0; 3];
        for place in places {
            sum = [sum[0] + f64::from(place.x), sum[1] + f64::from(place.y), sum[2] + f64::from(place.z)];
        }
        let norm = sum.iter().map(|axis| axis * axis).sum::<f64>().sqrt();
        let [x, y, z] = sum.map(|axis| (axis / norm * EARTH_RADIUS_MILES) as f32);
        (norm > 1.0).then_some(Self { x, y, z })
    }

    /// Straight-line distance through the sphere, miles, in [0, 8000].
    pub fn chord_miles(self, other: Self) -> f64 {
        let dx = f64::from(self.x) - f64::from(other.x);
        let dy = f64::from(self.y) - f64::from(other.y);
        let dz = f64::from(self.z) - f64::from(other.z);
        (dx * dx + dy * dy + dz * dz).sqrt()
    }
}

/// Moves a position to the center of its cell in a grid of `location_grid_degrees`. Responses then cannot reveal a
/// player's exact position, and nearby players share a locality. A cell size of 0 or less, or NaN, leaves the position
/// unchanged.
///
/// IP geolocation is accurate to about one degree at best, so little accuracy is lost.
pub fn snap_to_degree_grid(latitude: f64, longitude: f64, location_grid_degrees: f64) -> (f64, f64) {
    if location_grid_degrees.is_nan() || location_grid_degrees <= 0.0 {
        return (latitude, longitude);
    }
    let center = |degrees: f64| ((degrees / location_grid_degrees).floor() + 0.5) * location_grid_degrees;
    (center(latitude).clamp(-90.0, 90.0), center(longitude).clamp(-180.0, 180.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-18: coordinates out of range, NaN and points off the sphere are rejected.
    #[test]
    fn locality_rejects_points_off_the_sphere() {
        let invalid = [
            (90.1, 0.0),
            (-91.0, 0.0),
            (0.0, 180.1),
            (0.0, -181.0),
            (f64::NAN, 0.0),
            (0.0, f64::NAN),
            (f64::INFINITY, 0.0),
        ];
        for (latitude, longitude) in invalid {
            assert_eq!(Locality::from_degrees(latitude, longitude), None);
        }
        let invalid = [
            (0.0, 0.0, 0.0),
            (f32::NAN, 0.0, 4000.0),
            (4000.0, 4000.0, 0.0),
            (f32::INFINITY, 0.0, 0.0),
            (3990.0, 0.0, 0.0),
        ];
        for (x, y, z) in invalid {
            assert_eq!(Locality::from_xyz_miles(x, y, z), None);
        }
    }

    #[test]
    fn locality_converts_back_to_degrees() {
        for (latitude, longitude) in [(47.61, -122.33), (-33.9, 151.2), (0.0, 180.0), (89.5, 10.0), (-89.5, -179.5)] {
            let (north, east) = Locality::from_degrees(latitude, longitude).unwrap().to_degrees();
            assert!((north - latitude).abs() < 1e-4 && (east - longitude).abs() < 1e-2, "{north} {east}");
        }
        assert_eq!(Locality::from_degrees(90.0, 30.0).unwrap().to_degrees().0, 90.0);
    }

    #[test]
    fn midpoint_is_equally_far_from_both_places() {
        let place = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
        let (seattle, los_angeles) = (place(47.61, -122.33), place(34.05, -118.24));
        let midpoint = Locality::midpoint([seattle, los_angeles]).unwrap();
        assert!(Locality::from_xyz_miles(midpoint.x, midpoint.y, midpoint.z).is_some(), "not on the sphere");
        assert!((midpoint.chord_miles(seattle) - midpoint.chord_miles(los_angeles)).abs() < 0.01);
        assert!(midpoint.chord_miles(seattle) < 500.0);
        assert_eq!(Locality::midpoint([place(0.0, 0.0), place(0.0, 180.0)]), None);
        assert_eq!(Locality::midpoint([]), None);
    }

    /// SEC-9: all positions of a cell have the same locality, and the center of a cell lies in it.
    #[test]
    fn degree_grid_gives_nearby_places_one_cell_center() {
        assert_eq!(snap_to_degree_grid(47.61, -122.33, 1.0), (47.5, -122.5));
        assert_eq!(snap_to_degree_grid(47.01, -122.99, 1.0), (47.5, -122.5));
        assert_eq!(snap_to_degree_grid(-0.1, 0.1, 1.0), (-0.5, 0.5));
        assert_eq!(snap_to_degree_grid(90.0, 180.0, 1.0), (90.0, 180.0));
        assert_eq!(snap_to_degree_grid(-90.0, -180.0, 1.0), (-89.5, -179.5));
        assert_eq!(snap_to_degree_grid(47.61, -122.33, 0.0), (47.61, -122.33));
        assert_eq!(snap_to_degree_grid(47.61, -122.33, f64::NAN), (47.61, -122.33));
    }
}

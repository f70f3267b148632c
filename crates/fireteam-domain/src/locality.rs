//! Where a session is, in the form the scorer wants: a point in Cartesian miles on a sphere of radius 4000.
//!
//! Latitude and longitude are for people and databases; comparing two of them needs six trigonometric calls. A
//! Cartesian point needs three multiplications, so the conversion is made once, on arrival (S1-25).

/// The radius of the sphere, miles (Villegas, chapter 3: "which is the radius of Earth in miles"). The true mean is
/// 3958.8; only order matters, so the paper's number stays (B-16).
pub const EARTH_RADIUS_MILES: f64 = 4000.0;

/// Kilometres in a statute mile.
pub const KM_PER_MILE: f64 = 1.609_344;

/// The farthest that two localities can be apart: the sphere's diameter, miles.
pub const DISTANCE_MILES_MAX: f64 = 2.0 * EARTH_RADIUS_MILES;

/// The grid that places are snapped to where nobody says otherwise, degrees: measured against round trips, it costs next to
/// nothing (docs/BENCHMARKS.md).
pub const DEFAULT_LOCATION_GRID_DEGREES: f64 = 1.0;

/// A point in Cartesian miles, computed in double and kept as float32 (S1-25). An unknown place is `None`, never the
/// centre of the sphere, which would be equally near to everyone (S1-27).
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
    /// Converts geographic degrees: latitude north in [-90, 90], longitude east in [-180, 180]. `None` outside those
    /// ranges and for NaN.
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

    /// Accepts a point that somebody else computed if it lies on the sphere, give or take 5 miles (the paper's own
    /// printed example is off by a third of a mile, B-15).
    pub fn from_xyz(x: f32, y: f32, z: f32) -> Option<Self> {
        let norm = (f64::from(x).powi(2) + f64::from(y).powi(2) + f64::from(z).powi(2)).sqrt();
        ((norm - EARTH_RADIUS_MILES).abs() <= 5.0).then_some(Self { x, y, z })
    }

    /// The point on the sphere that lies between `places`: where their mean points to. `None` for none, and for places that lie
    /// so evenly about the sphere that there is no between.
    pub fn midpoint(places: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut sum = [0.0; 3];
        for place in places {
            sum = [sum[0] + f64::from(place.x), sum[1] + f64::from(place.y), sum[2] + f64::from(place.z)];
        }
        let norm = sum.iter().map(|it| it * it).sum::<f64>().sqrt();
        let [x, y, z] = sum.map(|it| (it / norm * EARTH_RADIUS_MILES) as f32);
        (1.0 < norm).then_some(Self { x, y, z })
    }

    /// Straight-line distance through the sphere, miles, in [0, 8000] (S1-26).
    pub fn chord_miles(self, other: Self) -> f64 {
        let dx = f64::from(self.x) - f64::from(other.x);
        let dy = f64::from(self.y) - f64::from(other.y);
        let dz = f64::from(self.z) - f64::from(other.z);
        (dx * dx + dy * dy + dz * dz).sqrt()
    }
}

/// Moves a place to the centre of its cell in a grid of `cell_degrees`, so that no answer can give a player's place
/// away and neighbours share a locality. A cell size of 0 or less leaves the place alone.
///
/// IP location is no better than about a degree, so little is lost (DESIGN section 6).
pub fn snap_to_degree_grid(latitude: f64, longitude: f64, cell_degrees: f64) -> (f64, f64) {
    if cell_degrees.is_nan() || cell_degrees <= 0.0 {
        return (latitude, longitude);
    }
    let centre = |degrees: f64| ((degrees / cell_degrees).floor() + 0.5) * cell_degrees;
    (centre(latitude).clamp(-90.0, 90.0), centre(longitude).clamp(-180.0, 180.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-18: nothing that is not on the sphere becomes a locality.
    #[test]
    fn locality_rejects_points_off_the_sphere() {
        let bad = [
            (90.1, 0.0),
            (-91.0, 0.0),
            (0.0, 180.1),
            (0.0, -181.0),
            (f64::NAN, 0.0),
            (0.0, f64::NAN),
            (f64::INFINITY, 0.0),
        ];
        for (latitude, longitude) in bad {
            assert_eq!(Locality::from_degrees(latitude, longitude), None);
        }
        let bad = [
            (0.0, 0.0, 0.0),
            (f32::NAN, 0.0, 4000.0),
            (4000.0, 4000.0, 0.0),
            (f32::INFINITY, 0.0, 0.0),
            (3990.0, 0.0, 0.0),
        ];
        for (x, y, z) in bad {
            assert_eq!(Locality::from_xyz(x, y, z), None);
        }
    }

    #[test]
    fn midpoint_is_equally_far_from_both_places() {
        let place = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
        let (seattle, los_angeles) = (place(47.61, -122.33), place(34.05, -118.24));
        let between = Locality::midpoint([seattle, los_angeles]).unwrap();
        assert!(Locality::from_xyz(between.x, between.y, between.z).is_some(), "it is on the sphere");
        assert!((between.chord_miles(seattle) - between.chord_miles(los_angeles)).abs() < 0.01);
        assert!(between.chord_miles(seattle) < 500.0);
        assert_eq!(Locality::midpoint([place(0.0, 0.0), place(0.0, 180.0)]), None);
        assert_eq!(Locality::midpoint([]), None);
    }

    /// SEC-9: everyone in a cell has the same locality, and a cell's centre is in its cell.
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

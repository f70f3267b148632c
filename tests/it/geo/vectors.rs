//! Localities and distances on the sphere of 4,000 miles, against values computed elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;

use fireteam::domain::locality::{CHORD_MILES_MAX, Locality};

#[derive(Deserialize)]
struct Vectors {
    points: BTreeMap<String, Point>,
    pairs: Vec<(String, String, f64)>,
    printed: Vec<Printed>,
    printed_distance_miles: f64,
    nearest_order_from: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Point {
    latitude: f64,
    longitude: f64,
    xyz: [f64; 3],
}

#[derive(Deserialize)]
struct Printed {
    player: String,
    printed: [f64; 3],
}

fn load_vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors/locality.json")).unwrap()
}

impl Vectors {
    fn locality(&self, name: &str) -> Locality {
        let point = &self.points[name];
        Locality::from_degrees(point.latitude, point.longitude).unwrap()
    }
}

fn coordinate_errors(locality: Locality, xyz: [f64; 3]) -> [f64; 3] {
    let found = [locality.x, locality.y, locality.z];
    std::array::from_fn(|axis| (f64::from(found[axis]) - xyz[axis]).abs())
}

/// S1-25: sixteen localities, to a thousandth of a mile, the precision of float32.
#[test]
fn locality_matches_the_vectors() {
    let vectors = load_vectors();
    assert_eq!(vectors.points.len(), 16);
    for (name, point) in &vectors.points {
        let [x, y, z] = coordinate_errors(vectors.locality(name), point.xyz);
        assert!(x < 0.001 && y < 0.001 && z < 0.001, "{name}: {x} {y} {z}");
    }
}

/// S1-26, B-16: all 120 chords to 0.01 miles, equal in both directions, and none above the diameter.
#[test]
fn distance_is_the_chord_length() {
    let vectors = load_vectors();
    assert_eq!(vectors.pairs.len(), 120);
    for (one, other, expected) in &vectors.pairs {
        let (a, b) = (vectors.locality(one), vectors.locality(other));
        assert!((a.chord_miles(b) - expected).abs() <= 0.01, "{one} to {other}: {}", a.chord_miles(b));
        assert_eq!(a.chord_miles(b), b.chord_miles(a));
        assert!(a.chord_miles(b) <= CHORD_MILES_MAX + 0.001);
    }
}

/// S1-26: the initial order is by chord length, nearest first.
#[test]
fn distance_order_matches_the_vectors() {
    let vectors = load_vectors();
    for (from, expected) in &vectors.nearest_order_from {
        let here = vectors.locality(from);
        let mut others: Vec<&String> = vectors.points.keys().filter(|name| *name != from).collect();
        others.sort_by(|a, b| here.chord_miles(vectors.locality(a)).total_cmp(&here.chord_miles(vectors.locality(b))));
        assert_eq!(others, expected.iter().collect::<Vec<_>>(), "from {from}");
    }
}

/// B-15: Los Angeles as printed; the printed Y and Z of Seattle differ by a quarter of a mile, and the printed distance
/// by about 3 miles.
#[test]
fn printed_localities_are_close_to_the_formula() {
    let vectors = load_vectors();
    for Printed { player, printed } in &vectors.printed {
        let [x, y, z] = coordinate_errors(vectors.locality(player), *printed);
        let tolerance = if player == "MikeLA" { 0.001 } else { 0.3 };
        assert!(x < 0.001 && y < tolerance && z < tolerance, "{player}: {x} {y} {z}");
        let [x, y, z] = printed.map(|miles| miles as f32);
        assert!(Locality::from_xyz_miles(x, y, z).is_some());
    }
    let chord = vectors.locality("BobSeattle").chord_miles(vectors.locality("MikeLA"));
    assert!((chord - 967.834).abs() <= 0.01);
    assert!((chord - vectors.printed_distance_miles).abs() <= 3.0);
}

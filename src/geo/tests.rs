//! Locality files of our own making, good and broken, judged by what was written into them.

use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use mmdb_writer::{IpVersion, Value, Writer};

use super::*;

const EXACT: LocatorSettings =
    LocatorSettings { cell_degrees: 0.0, session_cell_degrees: 0.0, max_accuracy_radius_km: 500.0 };
const SEATTLE: (f64, f64) = (47.606, -122.332);
const TOKYO: (f64, f64) = (35.689, 139.692);

fn nested((latitude, longitude): (f64, f64), radius_km: Option<u16>) -> Value {
    let mut location = vec![("latitude", Value::Double(latitude)), ("longitude", Value::Double(longitude))];
    location.extend(radius_km.map(|radius| ("accuracy_radius", Value::U16(radius))));
    Value::map([("city", Value::map([("geoname_id", Value::U32(1))])), ("location", Value::map(location))])
}

fn flat((latitude, longitude): (f64, f64)) -> Value {
    let country = ("country_code", Value::from("US"));
    Value::map([country, ("latitude", Value::Float(latitude as f32)), ("longitude", Value::Float(longitude as f32))])
}

fn file_bytes(version: IpVersion, networks: &[(&str, Value)]) -> Vec<u8> {
    let mut writer = Writer::builder("Test-City").ip_version(version).build();
    for (network, value) in networks {
        writer.insert_value(network.parse::<ipnet::IpNet>().unwrap(), value.clone()).unwrap();
    }
    writer.to_bytes().unwrap()
}

fn on_disk(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
    path
}

fn locator(files: &[&[u8]], settings: LocatorSettings) -> Locator {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        files.iter().enumerate().map(|(at, bytes)| on_disk(&folder, &format!("{at}.mmdb"), bytes)).collect();
    Locator::load(&paths, settings).unwrap()
}

fn at(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn check(locator: &Locator, address: &str, expected: Option<(f64, f64)>) {
    let found = locator.locate(at(address));
    let expected = expected.map(|(latitude, longitude)| Locality::from_degrees(latitude, longitude).unwrap());
    match (found, expected) {
        (Some(found), Some(expected)) => assert!(found.chord_miles(expected) < 0.01, "{address}: {found:?}"),
        (found, expected) => assert_eq!(found, expected, "{address}"),
    }
}

#[test]
fn both_layouts_and_both_number_types_are_read() {
    let bytes = file_bytes(
        IpVersion::V6,
        &[("203.0.112.0/24", nested(SEATTLE, None)), ("8.8.0.0/16", flat(TOKYO)), ("2a00::/16", flat(SEATTLE))],
    );
    let locator = locator(&[&bytes], EXACT);
    check(&locator, "203.0.112.9", Some(SEATTLE));
    check(&locator, "8.8.8.8", Some(TOKYO));
    check(&locator, "2a00:1::1", Some(SEATTLE));
}

#[test]
fn an_ipv4_address_in_ipv6_clothes_is_ipv4() {
    let v4 = file_bytes(IpVersion::V4, &[("8.8.0.0/16", nested(TOKYO, None))]);
    check(&locator(&[&v4], EXACT), "::ffff:8.8.8.8", Some(TOKYO));
}

#[test]
fn a_file_of_the_other_version_knows_nothing_and_the_next_is_asked() {
    let v4 = file_bytes(IpVersion::V4, &[("8.8.0.0/16", nested(TOKYO, None))]);
    let v6 = file_bytes(IpVersion::V6, &[("2a00::/16", flat(SEATTLE)), ("8.0.0.0/8", flat(SEATTLE))]);
    let alone = locator(&[&v4], EXACT);
    check(&alone, "2a00::1", None);
    let both = locator(&[&v4, &v6], EXACT);
    check(&both, "2a00::1", Some(SEATTLE));
    check(&both, "8.8.8.8", Some(TOKYO));
    check(&both, "8.9.9.9", Some(SEATTLE));
}

/// S1-27, B-37: unknown and private addresses have no locality, whatever a file says of them.
#[test]
fn unknown_and_private_addresses_are_nowhere() {
    let everywhere = file_bytes(IpVersion::V6, &[("0.0.0.0/1", flat(TOKYO)), ("128.0.0.0/1", flat(TOKYO))]);
    let locator = locator(&[&everywhere], EXACT);
    for address in ["10.1.2.3", "192.168.0.1", "172.16.9.9", "127.0.0.1", "169.254.0.1", "0.0.0.0", "224.0.0.1"] {
        check(&locator, address, None);
    }
    for address in ["::1", "::", "fe80::1", "fd00::1", "ff02::1", "::ffff:10.0.0.1", "2a00::1"] {
        check(&locator, address, None);
    }
    check(&locator, "8.8.8.8", Some(TOKYO));
}

#[test]
fn a_place_that_the_file_doubts_is_unknown() {
    let bytes = file_bytes(
        IpVersion::V4,
        &[("1.0.0.0/24", nested(TOKYO, Some(500))), ("1.0.1.0/24", nested(TOKYO, Some(501)))],
    );
    let locator = locator(&[&bytes], EXACT);
    check(&locator, "1.0.0.1", Some(TOKYO));
    check(&locator, "1.0.1.1", None);
}

/// S1-27: some files write "unknown" as 0, 0, and some write nonsense.
#[test]
fn null_island_and_impossible_places_are_unknown() {
    let bytes = file_bytes(
        IpVersion::V4,
        &[
            ("1.0.0.0/24", nested((0.0, 0.0), None)),
            ("1.0.1.0/24", nested((91.0, 0.0), None)),
            ("1.0.2.0/24", nested((f64::NAN, 0.0), None)),
            ("1.0.3.0/24", nested(TOKYO, None)),
        ],
    );
    let locator = locator(&[&bytes], EXACT);
    for address in ["1.0.0.1", "1.0.1.1", "1.0.2.1"] {
        check(&locator, address, None);
    }
    check(&locator, "1.0.3.1", Some(TOKYO));
}

/// SEC-9: what leaves the locator is a cell's centre, not a place.
#[test]
fn a_place_is_snapped_to_the_middle_of_its_cell() {
    let bytes = file_bytes(IpVersion::V4, &[("1.0.0.0/24", nested(SEATTLE, None))]);
    check(&locator(&[&bytes], LocatorSettings::default()), "1.0.0.1", Some((47.5, -122.5)));
}

/// SEC-9: others know of it the middle of a larger cell, and never of a smaller one.
#[test]
fn others_know_a_place_no_better() {
    let bytes = file_bytes(IpVersion::V4, &[("1.0.0.0/24", nested(SEATTLE, None))]);
    let coarsely = |cell_degrees, session_cell_degrees| {
        let settings = LocatorSettings { cell_degrees, session_cell_degrees, ..LocatorSettings::default() };
        locator(&[&bytes], settings).locate_coarsely(at("1.0.0.1")).unwrap()
    };
    let middle = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
    assert!(coarsely(1.0, 3.0).chord_miles(middle(46.5, -121.4458)) < 0.01);
    assert_eq!(coarsely(5.0, 3.0), middle(47.5, -122.5));
    assert_eq!(coarsely(1.0, 0.0), middle(47.5, -122.5));
    assert_eq!(coarsely(0.0, 0.0), middle(SEATTLE.0, SEATTLE.1));
}

#[test]
fn files_that_are_no_city_edition_are_refused_with_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let countries = file_bytes(IpVersion::V4, &[("1.0.0.0/24", Value::map([("country_code", Value::from("US"))]))]);
    let whole = file_bytes(IpVersion::V4, &[("1.0.0.0/24", nested(SEATTLE, None))]);
    let text_for_number = Value::map([("location", Value::map([("latitude", Value::from("47"))]))]);
    let wrong_type = file_bytes(IpVersion::V4, &[("1.0.0.0/24", text_for_number)]);
    let cases: [(&str, &[u8], &str); 5] = [
        ("empty.mmdb", b"", "not a sound MaxMind-format file"),
        ("text.mmdb", b"not a database at all", "not a sound MaxMind-format file"),
        ("cut.mmdb", &whole[..whole.len() / 2], "not a sound MaxMind-format file"),
        ("countries.mmdb", &countries, "a city edition is needed"),
        ("types.mmdb", &wrong_type, "expected a number"),
    ];
    for (name, bytes, expected) in cases {
        let path = on_disk(&folder, name, bytes);
        let said = Locator::load(&[path], EXACT).unwrap_err().to_string();
        assert!(said.contains(name) && said.contains(expected), "{said}");
    }
    let said = Locator::load(&[folder.path().join("absent.mmdb")], EXACT).unwrap_err().to_string();
    assert!(said.contains("absent.mmdb: cannot be read"), "{said}");
}

/// R18: whatever becomes of the file, every answer comes from the last whole one. In-place writing, truncation and
/// renaming go on beside the look-ups; a reader that maps its file dies here.
#[test]
fn a_file_that_breaks_is_never_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let seattle = file_bytes(IpVersion::V4, &[("1.0.0.0/24", nested(SEATTLE, None))]);
    let tokyo = file_bytes(IpVersion::V4, &[("1.0.0.0/24", nested(TOKYO, None))]);
    let path = on_disk(&folder, "city.mmdb", &seattle);
    let handle = LocatorHandle::new(vec![path.clone()], EXACT);
    assert!(!handle.is_loaded() && handle.locate(at("1.0.0.1")).is_none());
    handle.reload().unwrap();

    let places = [SEATTLE, TOKYO].map(|(latitude, longitude)| Locality::from_degrees(latitude, longitude));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut asked = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                assert!(places.contains(&handle.locate(at("1.0.0.1"))));
                asked += 1;
            }
            asked
        });
        for cycle in 0..340_usize {
            let next = if cycle % 2 == 0 { &tokyo } else { &seattle };
            std::fs::write(&path, &next[..next.len() * (cycle % 7) / 8]).unwrap();
            assert!(handle.reload().is_err());
            let beside = on_disk(&folder, "next.mmdb", next);
            std::fs::rename(&beside, &path).unwrap();
            handle.reload().unwrap();
            assert_eq!(handle.locate(at("1.0.0.1")), places[(cycle + 1) % 2]);
            std::fs::remove_file(&path).unwrap();
            assert!(handle.reload().is_err());
        }
        stop.store(true, Ordering::Relaxed);
        assert!(0 < asking.join().unwrap());
    });
}

/// SEC-3: bytes at random never bring the reader down, neither when it loads nor when it is asked.
#[test]
fn flipped_bytes_never_panic() {
    let networks: Vec<(String, Value)> =
        (0..64).map(|at| (format!("1.{at}.0.0/16"), nested((f64::from(at), 10.0), Some(20)))).collect();
    let borrowed: Vec<(&str, Value)> = networks.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let whole = file_bytes(IpVersion::V6, &borrowed);
    let folder = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for at_byte in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at_byte] ^= 0xff;
        match Locator::load(&[on_disk(&folder, "flipped.mmdb", &bytes)], EXACT) {
            Ok(locator) => assert!(
                (0..64).all(|net| locator.locate(at(&format!("1.{net}.2.3"))).is_none_or(|it| it.x.is_finite()))
            ),
            Err(_) => refused += 1,
        }
    }
    assert!(0 < refused);
}

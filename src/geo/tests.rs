//! Generated GeoIP files, valid and damaged: lookups must return the coordinates written into them.

use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use mmdb_writer::{IpVersion, Value, Writer};

use super::*;

const WITHOUT_GRID: LocatorSettings =
    LocatorSettings { grid_degrees: 0.0, session_grid_degrees: 0.0, geoip_max_accuracy_radius_km: 500.0 };
const SEATTLE: (f64, f64) = (47.606, -122.332);
const TOKYO: (f64, f64) = (35.689, 139.692);

fn nested_record((latitude, longitude): (f64, f64), radius_km: Option<u16>) -> Value {
    let mut location = vec![("latitude", Value::Double(latitude)), ("longitude", Value::Double(longitude))];
    location.extend(radius_km.map(|radius| ("accuracy_radius", Value::U16(radius))));
    Value::map([("city", Value::map([("geoname_id", Value::U32(1))])), ("location", Value::map(location))])
}

fn flat_record((latitude, longitude): (f64, f64)) -> Value {
    let country = ("country_code", Value::from("US"));
    Value::map([country, ("latitude", Value::Float(latitude as f32)), ("longitude", Value::Float(longitude as f32))])
}

fn mmdb_bytes(version: IpVersion, networks: &[(&str, Value)]) -> Vec<u8> {
    let mut writer = Writer::builder("Test-City").ip_version(version).build();
    for (network, value) in networks {
        writer.insert_value(network.parse::<ipnet::IpNet>().unwrap(), value.clone()).unwrap();
    }
    writer.to_bytes().unwrap()
}

fn write_file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
    path
}

fn locator_of_files(files: &[&[u8]], settings: LocatorSettings) -> GeoIpLocator {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        files.iter().enumerate().map(|(at, bytes)| write_file(&folder, &format!("{at}.mmdb"), bytes)).collect();
    GeoIpLocator::load_files(&paths, settings).unwrap()
}

fn parse_address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn assert_located(locator: &GeoIpLocator, address: &str, expected: Option<(f64, f64)>) {
    let found = locator.locate(parse_address(address));
    let expected = expected.map(|(latitude, longitude)| Locality::from_degrees(latitude, longitude).unwrap());
    match (found, expected) {
        (Some(found), Some(expected)) => assert!(found.chord_miles(expected) < 0.01, "{address}: {found:?}"),
        (found, expected) => assert_eq!(found, expected, "{address}"),
    }
}

#[test]
fn geoip_reads_both_layouts_and_both_number_types() {
    let bytes = mmdb_bytes(
        IpVersion::V6,
        &[
            ("203.0.112.0/24", nested_record(SEATTLE, None)),
            ("8.8.0.0/16", flat_record(TOKYO)),
            ("2a00::/16", flat_record(SEATTLE)),
        ],
    );
    let locator = locator_of_files(&[&bytes], WITHOUT_GRID);
    assert_located(&locator, "203.0.112.9", Some(SEATTLE));
    assert_located(&locator, "8.8.8.8", Some(TOKYO));
    assert_located(&locator, "2a00:1::1", Some(SEATTLE));
}

#[test]
fn geoip_looks_up_a_mapped_ipv4_address_as_ipv4() {
    let v4 = mmdb_bytes(IpVersion::V4, &[("8.8.0.0/16", nested_record(TOKYO, None))]);
    assert_located(&locator_of_files(&[&v4], WITHOUT_GRID), "::ffff:8.8.8.8", Some(TOKYO));
}

#[test]
fn geoip_tries_the_next_file_for_the_other_ip_version() {
    let v4 = mmdb_bytes(IpVersion::V4, &[("8.8.0.0/16", nested_record(TOKYO, None))]);
    let v6 = mmdb_bytes(IpVersion::V6, &[("2a00::/16", flat_record(SEATTLE)), ("8.0.0.0/8", flat_record(SEATTLE))]);
    let alone = locator_of_files(&[&v4], WITHOUT_GRID);
    assert_located(&alone, "2a00::1", None);
    let both = locator_of_files(&[&v4, &v6], WITHOUT_GRID);
    assert_located(&both, "2a00::1", Some(SEATTLE));
    assert_located(&both, "8.8.8.8", Some(TOKYO));
    assert_located(&both, "8.9.9.9", Some(SEATTLE));
}

/// S1-27, B-37: unknown and private addresses have no locality, even if a file contains them.
#[test]
fn geoip_has_no_locality_for_unknown_and_private_addresses() {
    let everywhere =
        mmdb_bytes(IpVersion::V6, &[("0.0.0.0/1", flat_record(TOKYO)), ("128.0.0.0/1", flat_record(TOKYO))]);
    let locator = locator_of_files(&[&everywhere], WITHOUT_GRID);
    for address in ["10.1.2.3", "192.168.0.1", "172.16.9.9", "127.0.0.1", "169.254.0.1", "0.0.0.0", "224.0.0.1"] {
        assert_located(&locator, address, None);
    }
    for address in ["::1", "::", "fe80::1", "fd00::1", "ff02::1", "::ffff:10.0.0.1", "2a00::1"] {
        assert_located(&locator, address, None);
    }
    assert_located(&locator, "8.8.8.8", Some(TOKYO));
}

#[test]
fn geoip_ignores_records_beyond_the_accuracy_radius() {
    let bytes = mmdb_bytes(
        IpVersion::V4,
        &[("1.0.0.0/24", nested_record(TOKYO, Some(500))), ("1.0.1.0/24", nested_record(TOKYO, Some(501)))],
    );
    let locator = locator_of_files(&[&bytes], WITHOUT_GRID);
    assert_located(&locator, "1.0.0.1", Some(TOKYO));
    assert_located(&locator, "1.0.1.1", None);
}

/// S1-27: some files write "unknown" as 0, 0, and some contain invalid coordinates.
#[test]
fn geoip_ignores_null_island_and_invalid_coordinates() {
    let bytes = mmdb_bytes(
        IpVersion::V4,
        &[
            ("1.0.0.0/24", nested_record((0.0, 0.0), None)),
            ("1.0.1.0/24", nested_record((91.0, 0.0), None)),
            ("1.0.2.0/24", nested_record((f64::NAN, 0.0), None)),
            ("1.0.3.0/24", nested_record(TOKYO, None)),
        ],
    );
    let locator = locator_of_files(&[&bytes], WITHOUT_GRID);
    for address in ["1.0.0.1", "1.0.1.1", "1.0.2.1"] {
        assert_located(&locator, address, None);
    }
    assert_located(&locator, "1.0.3.1", Some(TOKYO));
}

/// SEC-9: the locator returns the center of a grid cell, not the exact coordinates.
#[test]
fn geoip_snaps_a_locality_to_its_grid_cell_center() {
    let bytes = mmdb_bytes(IpVersion::V4, &[("1.0.0.0/24", nested_record(SEATTLE, None))]);
    assert_located(&locator_of_files(&[&bytes], LocatorSettings::default()), "1.0.0.1", Some((47.5, -122.5)));
}

/// SEC-9: other players see the center of a cell of the session grid, which is never finer than the own grid.
#[test]
fn geoip_session_grid_is_never_finer_than_the_own_grid() {
    let bytes = mmdb_bytes(IpVersion::V4, &[("1.0.0.0/24", nested_record(SEATTLE, None))]);
    let coarsely = |location_grid_degrees, session_location_grid_degrees| {
        let settings = LocatorSettings {
            grid_degrees: location_grid_degrees,
            session_grid_degrees: session_location_grid_degrees,
            ..LocatorSettings::default()
        };
        locator_of_files(&[&bytes], settings).locate_on_session_grid(parse_address("1.0.0.1")).unwrap()
    };
    let middle = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
    assert!(coarsely(1.0, 3.0).chord_miles(middle(46.5, -121.4458)) < 0.01);
    assert_eq!(coarsely(5.0, 3.0), middle(47.5, -122.5));
    assert_eq!(coarsely(1.0, 0.0), middle(47.5, -122.5));
    assert_eq!(coarsely(0.0, 0.0), middle(SEATTLE.0, SEATTLE.1));
}

#[test]
fn geoip_file_without_cities_is_rejected_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let countries = mmdb_bytes(IpVersion::V4, &[("1.0.0.0/24", Value::map([("country_code", Value::from("US"))]))]);
    let whole = mmdb_bytes(IpVersion::V4, &[("1.0.0.0/24", nested_record(SEATTLE, None))]);
    let text_for_number = Value::map([("location", Value::map([("latitude", Value::from("47"))]))]);
    let wrong_type = mmdb_bytes(IpVersion::V4, &[("1.0.0.0/24", text_for_number)]);
    let cases: [(&str, &[u8], &str); 5] = [
        ("empty.mmdb", b"", "damaged or not in MaxMind format"),
        ("text.mmdb", b"not a database at all", "damaged or not in MaxMind format"),
        ("cut.mmdb", &whole[..whole.len() / 2], "damaged or not in MaxMind format"),
        ("countries.mmdb", &countries, "use a city edition"),
        ("types.mmdb", &wrong_type, "expected a number"),
    ];
    for (name, bytes, expected) in cases {
        let path = write_file(&folder, name, bytes);
        let error = GeoIpLocator::load_files(&[path], WITHOUT_GRID).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
    let error = GeoIpLocator::load_files(&[folder.path().join("absent.mmdb")], WITHOUT_GRID).unwrap_err().to_string();
    assert!(error.contains("absent.mmdb: cannot be read"), "{error}");
}

/// R18: every lookup is answered from the last valid file, while the file is written in place, truncated and renamed. A
/// reader that maps its file into memory would crash here.
#[test]
fn geoip_reload_of_a_damaged_file_keeps_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let seattle = mmdb_bytes(IpVersion::V4, &[("1.0.0.0/24", nested_record(SEATTLE, None))]);
    let tokyo = mmdb_bytes(IpVersion::V4, &[("1.0.0.0/24", nested_record(TOKYO, None))]);
    let path = write_file(&folder, "city.mmdb", &seattle);
    let handle = ReloadableLocator::new(vec![path.clone()], WITHOUT_GRID);
    assert!(!handle.is_loaded() && handle.locate(parse_address("1.0.0.1")).is_none());
    handle.reload().unwrap();

    let localities = [SEATTLE, TOKYO].map(|(latitude, longitude)| Locality::from_degrees(latitude, longitude));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let lookups = scope.spawn(|| {
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                assert!(localities.contains(&handle.locate(parse_address("1.0.0.1"))));
                count += 1;
            }
            count
        });
        for cycle in 0..340_usize {
            let next = if cycle % 2 == 0 { &tokyo } else { &seattle };
            std::fs::write(&path, &next[..next.len() * (cycle % 7) / 8]).unwrap();
            assert!(handle.reload().is_err());
            let beside = write_file(&folder, "next.mmdb", next);
            std::fs::rename(&beside, &path).unwrap();
            handle.reload().unwrap();
            assert_eq!(handle.locate(parse_address("1.0.0.1")), localities[(cycle + 1) % 2]);
            std::fs::remove_file(&path).unwrap();
            assert!(handle.reload().is_err());
        }
        stop.store(true, Ordering::Relaxed);
        assert!(lookups.join().unwrap() > 0);
    });
}

/// SEC-3: random bytes never make the reader panic, neither on load nor on lookup.
#[test]
fn geoip_file_with_flipped_bytes_never_panics() {
    let networks: Vec<(String, Value)> =
        (0..64).map(|n| (format!("1.{n}.0.0/16"), nested_record((f64::from(n), 10.0), Some(20)))).collect();
    let borrowed: Vec<(&str, Value)> = networks.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let whole = mmdb_bytes(IpVersion::V6, &borrowed);
    let folder = tempfile::tempdir().unwrap();
    let mut rejected = 0;
    for index in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[index] ^= 0xff;
        match GeoIpLocator::load_files(&[write_file(&folder, "flipped.mmdb", &bytes)], WITHOUT_GRID) {
            Ok(locator) => {
                assert!((0..64).all(|net| {
                    locator.locate(parse_address(&format!("1.{net}.2.3"))).is_none_or(|locality| locality.x.is_finite())
                }))
            }
            Err(_) => rejected += 1,
        }
    }
    assert!(rejected > 0);
}

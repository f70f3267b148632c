//! GeoIP database files of third parties: known answers, published test databases, broken files.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use fireteam::domain::locality::Locality;
use fireteam::geo::{GeoError, GeoIpLocator, LocatorSettings};

use crate::support::shared_data::shared_data;

const UNROUNDED_SETTINGS: LocatorSettings =
    LocatorSettings { grid_degrees: 0.0, session_grid_degrees: 0.0, geoip_max_accuracy_radius_km: 500.0 };
/// A thousandth of a degree on the sphere of 4,000 miles, in miles.
const THOUSANDTH_OF_A_DEGREE_MILES: f64 = 0.001 * std::f64::consts::PI / 180.0 * 4000.0;

fn ip_address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn assert_near(found: Option<Locality>, latitude: f64, longitude: f64, address: &str) {
    let expected = Locality::from_degrees(latitude, longitude).unwrap();
    let error_miles = found.unwrap_or_else(|| panic!("{address} is unknown")).chord_miles(expected);
    assert!(error_miles < 2.0 * THOUSANDTH_OF_A_DEGREE_MILES, "{address}: error of {error_miles} miles");
}

/// S1-25 end to end: 5,000 addresses have the location of the full database, in both file layouts.
#[test]
fn geoip_lookup_matches_5000_known_addresses() {
    let Some(folder) = shared_data("ip-dbip-subset") else { return };
    let expected = fs::read_to_string(folder.join("expected_lookups.csv")).unwrap();
    for layout in ["geoip2", "flat"] {
        let file = folder.join(format!("dbip-city-lite-subset-{layout}-layout.mmdb"));
        let locator = GeoIpLocator::load_files(&[file], UNROUNDED_SETTINGS).unwrap();
        let mut checked = 0;
        for line in expected.lines().skip(1) {
            // City names may hold commas; the first and the last two fields do not.
            let (address, rest) = line.split_once(',').unwrap();
            let (rest, longitude) = rest.rsplit_once(',').unwrap();
            let (_, latitude) = rest.rsplit_once(',').unwrap();
            assert_near(
                locator.locate(ip_address(address)),
                latitude.parse().unwrap(),
                longitude.parse().unwrap(),
                address,
            );
            checked += 1;
        }
        assert_eq!(checked, 5_000, "{layout}");
    }
}

/// The published City test databases: every location of their listings, for all network sizes and IP versions.
#[test]
fn geoip_reads_the_published_test_databases() {
    let Some(folder) = shared_data("ip-maxmind-test") else { return };
    for name in ["GeoIP2-City-Test", "GeoLite2-City-Test"] {
        let locator =
            GeoIpLocator::load_files(&[folder.join(name).with_extension("mmdb")], UNROUNDED_SETTINGS).unwrap();
        let listing: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_slice(&fs::read(folder.join(name).with_extension("json")).unwrap()).unwrap();
        let mut checked = 0;
        for (network, record) in listing.iter().flatten() {
            let number = |field: &str| record["location"][field].as_f64();
            let (address, _) = network.split_once('/').unwrap();
            // IPv4 networks are listed as `::1.2.3.0/120`.
            let address = ip_address(address);
            let address = match address {
                IpAddr::V6(v6) if v6.segments()[..6] == [0; 6] => IpAddr::V4(v6.to_ipv4().unwrap()),
                other => other,
            };
            let (Some(latitude), Some(longitude)) = (number("latitude"), number("longitude")) else { continue };
            if number("accuracy_radius").is_some_and(|radius| 500.0 < radius) {
                assert_eq!(locator.locate(address), None);
                continue;
            }
            let Some(found) = locator.locate(address) else { continue };
            assert_near(Some(found), latitude, longitude, network);
            checked += 1;
        }
        assert!(200 < checked, "{name}: {checked}");
        assert_near(locator.locate(ip_address("89.160.20.112")), 58.4167, 15.6167, "89.160.20.112");
        // S1-27: addresses without an entry.
        for unknown in ["1.1.1.1", "193.0.6.139", "128.112.1.1", "2606:4700:4700::1111", "10.0.0.1", "192.0.2.1"] {
            assert_eq!(locator.locate(ip_address(unknown)), None, "{unknown}");
        }
    }
}

fn mmdb_files_under(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "mmdb"));
    files.sort();
    files
}

/// SEC-3, R18: of all published test files, only the city editions are loaded. Broken and malicious files and files
/// without coordinates give an error that names the file.
#[test]
fn geoip_rejects_broken_files_without_a_panic() {
    let Some(folder) = shared_data("ip-maxmind-test") else { return };
    let mut loaded = Vec::new();
    let mut refused = 0;
    for file in mmdb_files_under(&folder) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        match GeoIpLocator::load_files(std::slice::from_ref(&file), UNROUNDED_SETTINGS) {
            Ok(_) => loaded.push(name),
            Err(error) => {
                assert!(
                    matches!(error, GeoError::InvalidFile { .. } | GeoError::NoCoordinates { .. }),
                    "{name}: {error}"
                );
                assert!(error.to_string().contains(&name));
                refused += 1;
            }
        }
    }
    assert_eq!(loaded, ["GeoIP2-City-Shield-Test.mmdb", "GeoIP2-City-Test.mmdb", "GeoLite2-City-Test.mmdb"]);
    assert!(40 <= refused, "{refused}");
}

//! The shipped GeoIP data: small, attributed, and complete for the addresses of the tour.

use std::net::IpAddr;
use std::path::Path;

use fireteam::domain::locality::Locality;
use fireteam::geo::{GeoIpLocator, LocatorSettings};

/// Each row of the address table in data/README.md, looked up in the shipped file.
#[test]
fn shipped_geoip_data_matches_the_readme() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let exact = LocatorSettings { grid_degrees: 0.0, ..LocatorSettings::default() };
    let locator = GeoIpLocator::load_files(&[data.join("dbip-tour.mmdb")], exact).unwrap();
    let readme = std::fs::read_to_string(data.join("README.md")).unwrap();
    let mut cities = Vec::new();
    for line in readme.lines().filter(|line| line.starts_with('|') && line.contains('`')) {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, city, address, latitude, longitude, _] = cells[..] else { panic!("{line}") };
        let found = locator.locate(address.parse::<IpAddr>().unwrap());
        let expected = Locality::from_degrees(latitude.parse().unwrap(), longitude.parse().unwrap()).unwrap();
        assert!(found.unwrap_or_else(|| panic!("{city}")).chord_miles(expected) < 0.1, "{city}");
        cities.push(city);
    }
    let expected = ["Seattle", "Los Angeles", "New York", "London", "Tokyo", "Sydney", "Frankfurt", "Sao Paulo"];
    assert_eq!(cities, expected);
}

#[test]
fn shipped_geoip_data_is_small_and_attributed() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    assert!(std::fs::metadata(data.join("dbip-tour.mmdb")).unwrap().len() < 100_000);
    let notice = std::fs::read_to_string(data.join("DBIP-LICENSE")).unwrap();
    assert!(notice.contains("Creative Commons Attribution 4.0"));
    let readme = std::fs::read_to_string(data.join("README.md")).unwrap();
    assert!(readme.contains("IP Geolocation by [DB-IP](https://db-ip.com)"));
}

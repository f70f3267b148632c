//! Extracts a small GeoIP file from a large one: the networks of given addresses, one address per line on standard input.
//!
//! `cut -d, -f4 site_ips.csv | cargo run --example trim_locality_db -- FULL.mmdb data/dbip-tour.mmdb`
//!
//! Lines without a valid address are skipped. Records are in MaxMind's own layout, with country, city and coordinates
//! only. The same input gives the same bytes.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::stdin;
use std::net::IpAddr;
use std::time::UNIX_EPOCH;

use ipnet::IpNet;
use maxminddb::{PathElement, Reader, path};
use mmdb_writer::{IpVersion, Value, Writer};

type CityReader = Reader<Vec<u8>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source_path, target_path] = arguments.as_slice() else {
        return Err("wrong number of arguments; usage: trim_locality_db FULL.mmdb SMALL.mmdb < addresses".into());
    };
    let source = Reader::open_readfile(source_path)?;

    let mut networks = BTreeMap::new();
    for line in stdin().lines() {
        let Ok(address) = line?.trim().parse::<IpAddr>() else { continue };
        if let Some((network, record)) = lookup_city(&source, address)? {
            networks.insert(network, record);
        }
    }

    let mut writer = Writer::builder("DBIP-City-Lite")
        .ip_version(IpVersion::V4)
        .description(&[("en", "A piece of DB-IP IP to City Lite, CC BY 4.0, https://db-ip.com")])
        .build_epoch(UNIX_EPOCH + std::time::Duration::from_secs(source.metadata().build_epoch))
        .build();
    for (network, record) in &networks {
        writer.insert_value(*network, record.clone())?;
    }
    let bytes = writer.to_bytes()?;
    std::fs::write(target_path, &bytes)?;
    println!("{} networks, {} bytes", networks.len(), bytes.len());
    Ok(())
}

/// Network of `address` and its record; `None` if the record has no coordinates.
fn lookup_city(source: &CityReader, address: IpAddr) -> Result<Option<(IpNet, Value)>, Box<dyn Error>> {
    let found = source.lookup(address)?;
    let text = |path: &[PathElement<'_>]| -> Result<Value, Box<dyn Error>> {
        Ok(Value::from(found.decode_path::<String>(path)?.unwrap_or_default()))
    };
    let number = |path: &[PathElement<'_>]| found.decode_path::<f64>(path);
    let (Some(latitude), Some(longitude)) =
        (number(&path!["location", "latitude"])?, number(&path!["location", "longitude"])?)
    else {
        return Ok(None);
    };
    let names = Value::map([("en", text(&path!["city", "names", "en"])?)]);
    let location = Value::map([("latitude", Value::Double(latitude)), ("longitude", Value::Double(longitude))]);
    let record = Value::map([
        ("city", Value::map([("names", names)])),
        ("country", Value::map([("iso_code", text(&path!["country", "iso_code"])?)])),
        ("location", location),
    ]);
    let network = found.network()?;
    Ok(Some((IpNet::new(network.ip(), network.prefix())?, record)))
}

//! Matrix of measured round trips between sites, read from two CSV files in WonderProxy's format: pings and site
//! locations.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::ScenarioError;
use fireteam_domain::locality::{KM_PER_MILE, Locality};

/// Maximum size of each file in bytes.
pub const LATENCY_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Maximum number of sites; the matrix has the square of it.
const SITES_MAX: usize = 2_000;

/// A site with more than this number of round trips faster than light is not at its stated location.
const IMPOSSIBLE_PAIRS_MAX: usize = 10;

/// Speed of light in a vacuum, kilometers per millisecond.
const LIGHT_KM_PER_MS: f64 = 299.79;

/// Round trips between sites.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyMatrix {
    sites: Vec<Locality>,
    /// Milliseconds, row by row; NaN without a measurement.
    round_trips_ms: Vec<f32>,
    /// Number of sites left out because they are faster than light at their stated location.
    pub misplaced_sites: usize,
}

#[derive(Debug, Deserialize)]
struct SiteRow {
    id: u32,
    latitude: f64,
    longitude: f64,
}

#[derive(Debug, Deserialize)]
struct PingRow {
    source: u32,
    destination: u32,
    avg: f64,
}

impl LatencyMatrix {
    /// Reads both files. `pings` has the columns source, destination and avg (milliseconds), `sites` has id, latitude
    /// and longitude. Leaves out pings of unknown sites, and sites that are not at their stated location.
    pub fn parse(pings: &str, sites: &str) -> Result<Self, ScenarioError> {
        let mut locations = BTreeMap::new();
        for row in parse_csv::<SiteRow>("sites file", sites)? {
            let location = Locality::from_degrees(row.latitude, row.longitude);
            let location = location.ok_or_else(|| {
                ScenarioError(format!(
                    "site {}: coordinates are out of range; use latitude -90 to 90 and longitude -180 to 180",
                    row.id
                ))
            })?;
            locations.insert(row.id, location);
        }
        if !(2..=SITES_MAX).contains(&locations.len()) {
            return Err(ScenarioError(format!("sites file has {} sites; use 2 to {SITES_MAX}", locations.len())));
        }
        let index_of: BTreeMap<u32, usize> = locations.keys().copied().zip(0..).collect();
        let matrix =
            Self::from_pings(locations.values().copied().collect(), &index_of, parse_csv("pings file", pings)?);
        Ok(matrix.without_misplaced_sites())
    }

    fn from_pings(sites: Vec<Locality>, index_of: &BTreeMap<u32, usize>, pings: Vec<PingRow>) -> Self {
        let count = sites.len();
        let (mut sums, mut counts) = (vec![0.0; count * count], vec![0_u32; count * count]);
        for ping in pings.iter().filter(|ping| ping.avg.is_finite() && ping.avg >= 0.0) {
            let (Some(&from), Some(&to)) = (index_of.get(&ping.source), index_of.get(&ping.destination)) else {
                continue;
            };
            // Both directions count as the same round trip.
            for index in [from * count + to, to * count + from] {
                sums[index] += ping.avg;
                counts[index] += 1;
            }
        }
        let mean = |(sum, count): (f64, u32)| if count == 0 { f32::NAN } else { (sum / f64::from(count)) as f32 };
        Self { sites, round_trips_ms: sums.into_iter().zip(counts).map(mean).collect(), misplaced_sites: 0 }
    }

    fn without_misplaced_sites(self) -> Self {
        let count = self.sites.len();
        let is_too_fast = |site: usize| {
            let beats_light = |&other: &usize| {
                let km = self.sites[site].chord_miles(self.sites[other]) * KM_PER_MILE;
                f64::from(self.round_trips_ms[site * count + other]) < 2.0 * km / LIGHT_KM_PER_MS
            };
            (0..count).filter(beats_light).count() > IMPOSSIBLE_PAIRS_MAX
        };
        let kept: Vec<usize> = (0..count).filter(|&site| !is_too_fast(site)).collect();
        let pairs = kept.iter().flat_map(|&from| kept.iter().map(move |&to| (from, to)));
        Self {
            round_trips_ms: pairs.map(|(from, to)| self.round_trips_ms[from * count + to]).collect(),
            sites: kept.iter().map(|&site| self.sites[site]).collect(),
            misplaced_sites: count - kept.len(),
        }
    }

    /// Number of sites.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// True without sites.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Locations of the sites.
    pub fn sites(&self) -> &[Locality] {
        &self.sites
    }

    /// Index of the site nearest to a location, and the distance in miles.
    pub fn nearest_site(&self, location: Locality) -> (usize, f64) {
        let distance_miles = |site: usize| self.sites[site].chord_miles(location);
        let nearest = (0..self.sites.len())
            .min_by(|&first, &second| distance_miles(first).total_cmp(&distance_miles(second)))
            .unwrap_or(0);
        (nearest, distance_miles(nearest))
    }

    /// Round trip between two sites in milliseconds, if measured.
    pub fn round_trip_ms(&self, from: usize, to: usize) -> Option<f64> {
        Some(f64::from(self.round_trips_ms[from * self.sites.len() + to])).filter(|ms| ms.is_finite())
    }
}

fn parse_csv<T: for<'a> Deserialize<'a>>(file: &str, text: &str) -> Result<Vec<T>, ScenarioError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.map_err(|error| ScenarioError(format!("{file}: {error}")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: &str = "id,name,latitude,longitude\n1,London,51.5,-0.1\n2,Paris,48.9,2.4\n7,Sydney,-33.9,151.2\n";

    #[test]
    fn latency_matrix_averages_both_directions_and_omits_missing_pairs() {
        let pings = "source,destination,min,avg,max\n1,2,0,8.0,9\n2,1,0,10.0,11\n1,9,0,5.0,6\n";
        let matrix = LatencyMatrix::parse(pings, SITES).unwrap();
        assert_eq!((matrix.site_count(), matrix.misplaced_sites), (3, 0));
        assert_eq!(matrix.round_trip_ms(0, 1), Some(9.0));
        assert_eq!(matrix.round_trip_ms(1, 0), Some(9.0));
        assert_eq!(matrix.round_trip_ms(0, 2), None);
        let (site, miles) = matrix.nearest_site(Locality::from_degrees(49.0, 2.0).unwrap());
        assert!(site == 1 && miles < 30.0, "{site} {miles}");
    }

    #[test]
    fn latency_matrix_errors_name_the_file_and_line() {
        let error = LatencyMatrix::parse("source,destination,avg\n1,2,fast\n", SITES).unwrap_err().to_string();
        assert!(error.contains("pings file") && error.contains("line: 2"), "{error}");
        let error = LatencyMatrix::parse("source,destination,avg\n", "id,latitude,longitude\n1,91,0\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("out of range"), "{error}");
    }
}

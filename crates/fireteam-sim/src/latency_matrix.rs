//! Measured round trips between places, from two CSV files as WonderProxy publishes them: who pinged whom, and where
//! they stand.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::ScenarioError;
use fireteam_domain::locality::{KM_PER_MILE, Locality};

/// Bytes that a file may have.
pub const LATENCY_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Sites that are kept; a matrix is their square.
const SITES_MAX: usize = 2_000;

/// A site that beats light on more than so many of its pairs is not where it is said to be.
const IMPOSSIBLE_PAIRS_MAX: usize = 10;

/// How far light comes in a vacuum in a millisecond, kilometres.
const LIGHT_KM_PER_MS: f64 = 299.79;

/// Round trips between sites.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyMatrix {
    sites: Vec<Locality>,
    /// Milliseconds, row by row; not a number where nothing was measured.
    round_trips_ms: Vec<f32>,
    /// Sites left out because they are too fast to be where they are said to be.
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
    /// Reads both files: `pings` with the columns source, destination and avg (milliseconds), `sites` with id, latitude
    /// and longitude. Pings of unknown sites are left out, as are sites that are not where they are said to be.
    pub fn parse(pings: &str, sites: &str) -> Result<Self, ScenarioError> {
        let mut places = BTreeMap::new();
        for row in parse_csv::<SiteRow>("the file of sites", sites)? {
            let place = Locality::from_degrees(row.latitude, row.longitude);
            let place = place.ok_or_else(|| ScenarioError(format!("site {} is nowhere on Earth", row.id)))?;
            places.insert(row.id, place);
        }
        if !(2..=SITES_MAX).contains(&places.len()) {
            return Err(ScenarioError(format!("{} sites: there are 2 to {SITES_MAX}", places.len())));
        }
        let place_of: BTreeMap<u32, usize> = places.keys().copied().zip(0..).collect();
        let whole = Self::from_pings(
            places.values().copied().collect(),
            &place_of,
            parse_csv("the file of round trips", pings)?,
        );
        Ok(whole.without_misplaced_sites())
    }

    fn from_pings(sites: Vec<Locality>, place_of: &BTreeMap<u32, usize>, pings: Vec<PingRow>) -> Self {
        let count = sites.len();
        let (mut sums, mut counts) = (vec![0.0; count * count], vec![0_u32; count * count]);
        for ping in pings.iter().filter(|ping| ping.avg.is_finite() && 0.0 <= ping.avg) {
            let (Some(&from), Some(&to)) = (place_of.get(&ping.source), place_of.get(&ping.destination)) else {
                continue;
            };
            // Both directions are one round trip.
            for at in [from * count + to, to * count + from] {
                sums[at] += ping.avg;
                counts[at] += 1;
            }
        }
        let mean = |(sum, count): (f64, u32)| if count == 0 { f32::NAN } else { (sum / f64::from(count)) as f32 };
        Self { sites, round_trips_ms: sums.into_iter().zip(counts).map(mean).collect(), misplaced_sites: 0 }
    }

    fn without_misplaced_sites(self) -> Self {
        let count = self.sites.len();
        let too_fast = |site: usize| {
            let beats_light = |&other: &usize| {
                let km = self.sites[site].chord_miles(self.sites[other]) * KM_PER_MILE;
                f64::from(self.round_trips_ms[site * count + other]) < 2.0 * km / LIGHT_KM_PER_MS
            };
            IMPOSSIBLE_PAIRS_MAX < (0..count).filter(beats_light).count()
        };
        let kept: Vec<usize> = (0..count).filter(|&site| !too_fast(site)).collect();
        let trips = kept.iter().flat_map(|&from| kept.iter().map(move |&to| (from, to)));
        Self {
            round_trips_ms: trips.map(|(from, to)| self.round_trips_ms[from * count + to]).collect(),
            sites: kept.iter().map(|&site| self.sites[site]).collect(),
            misplaced_sites: count - kept.len(),
        }
    }

    /// How many sites there are.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// The site nearest to a place, and how far it is, miles.
    pub fn nearest_site(&self, place: Locality) -> (usize, f64) {
        let far = |site: usize| self.sites[site].chord_miles(place);
        let nearest = (0..self.sites.len()).min_by(|&one, &other| far(one).total_cmp(&far(other))).unwrap_or(0);
        (nearest, far(nearest))
    }

    /// The round trip between two sites, milliseconds, if it was measured.
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
        let why = LatencyMatrix::parse("source,destination,avg\n1,2,fast\n", SITES).unwrap_err().to_string();
        assert!(why.contains("round trips") && why.contains("line: 2"), "{why}");
        let why = LatencyMatrix::parse("source,destination,avg\n", "id,latitude,longitude\n1,91,0\n")
            .unwrap_err()
            .to_string();
        assert!(why.contains("nowhere on Earth"), "{why}");
    }
}

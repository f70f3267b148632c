//! Hosts with measured round trips as parties and beacons.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use fireteam::domain::latency::beacon_fleet::{
    Beacon, BeaconFleet, BeaconPairRoundTrip, UNKNOWN_BEACON_PAIR_ROUND_TRIP_MS,
};
use fireteam::domain::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor, published_floors};
use fireteam::domain::latency::prediction::PairPrecision;
use fireteam::domain::latency::predictor_constants::PredictorConstants;
use fireteam::domain::locality::{DEFAULT_LOCATION_GRID_DEGREES, Locality};
use fireteam::domain::location_privacy::{DEFAULT_SESSION_GRID_DEGREES, snap_to_equal_width_grid};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

use crate::geo::prediction::FOLDS;
use crate::support::shared_data::shared_data;

/// Host with a wrong location: 44 of its round trips are faster than light in vacuum.
const MISPLACED_HOST_ID: u32 = 220;
/// Least number that is above all ids of hosts.
const HOST_ID_END: usize = 300;
/// Last mile of a home: median, milliseconds, and standard deviation of its logarithm.
const LAST_MILE: (f64, f64) = (12.0, 0.6);

/// Beacons of a fleet, and beacons that each party measures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FleetSize {
    pub(super) beacons: usize,
    pub(super) floors: usize,
}

impl FleetSize {
    pub(super) const fn new(beacons: usize, floors: usize) -> Self {
        Self { beacons, floors }
    }
}

impl fmt::Display for FleetSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.beacons, self.floors)
    }
}

/// Part of `tests/vectors/latency_prediction.json`: fleets of hosts, by their number of beacons.
#[derive(Deserialize)]
struct LayoutVectors {
    layouts: BTreeMap<usize, Layout>,
}

#[derive(Deserialize)]
struct Layout {
    site_ids: Vec<u32>,
    places: Vec<[f64; 2]>,
    round_trips: Vec<Vec<f64>>,
}

/// Delay of each host's access network, milliseconds, by id.
pub(super) struct LastMiles(Vec<f64>);

impl LastMiles {
    /// None: hosts as measured.
    pub(super) fn none() -> Self {
        Self(vec![0.0; HOST_ID_END])
    }

    /// Log-normal delays, as of homes.
    pub(super) fn random(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let (median_ms, deviation) = LAST_MILE;
        Self((0..HOST_ID_END).map(|_| median_ms * (deviation * standard_normal(&mut rng)).exp()).collect())
    }
}

/// Standard normal number (Box and Muller 1958).
fn standard_normal(rng: &mut Pcg64Mcg) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Hosts, and the least round trips of a day between them.
pub(super) struct MeasuredHosts {
    degrees: BTreeMap<u32, (f64, f64)>,
    /// By two ids, each below `HOST_ID_END`; of both directions.
    directed_ms: Vec<Option<f64>>,
    layouts: BTreeMap<usize, Layout>,
}

/// Inputs of one side of a prediction.
#[derive(Clone, Copy, PartialEq)]
enum Knowledge {
    Exact,
    /// A searcher's own: exact floors, and the cell of its address.
    Own,
    Published,
}

/// A fleet and parties of hosts on one side of their predictions.
pub(super) type Parties = BTreeMap<u32, CompletedVector>;

impl MeasuredHosts {
    pub(super) fn load() -> Option<Self> {
        let folder = shared_data("latency-wonderproxy")?;
        let mut degrees = BTreeMap::new();
        let mut reader = csv::Reader::from_path(folder.join("servers-2020-07-19.csv")).unwrap();
        let columns = reader.headers().unwrap().clone();
        let column = |name: &str| columns.iter().position(|it| it == name).expect("a column");
        let (id, latitude, longitude) = (column("id"), column("latitude"), column("longitude"));
        for row in reader.records() {
            let row = row.unwrap();
            degrees.insert(row[id].parse().unwrap(), (row[latitude].parse().unwrap(), row[longitude].parse().unwrap()));
        }
        degrees.remove(&MISPLACED_HOST_ID);
        let mut directed_ms = vec![None; HOST_ID_END * HOST_ID_END];
        let pings = fs::read_to_string(folder.join("pings-2020-07-19-2020-07-20-grouped.csv")).unwrap();
        for line in pings.lines().skip(1) {
            let mut fields = line.split(',');
            let mut id = || fields.next().unwrap().parse::<usize>().unwrap();
            let position = id() * HOST_ID_END + id();
            directed_ms[position] = Some(fields.next().unwrap().parse().unwrap());
        }
        let vectors: LayoutVectors =
            serde_json::from_str(include_str!("../../../vectors/latency_prediction.json")).unwrap();
        Some(Self { degrees, directed_ms, layouts: vectors.layouts })
    }

    /// Hosts whose id leaves `fold` when divided by the number of folds.
    pub(super) fn sites_of_fold(&self, fold: u32) -> Vec<u32> {
        self.degrees.keys().copied().filter(|id| id % FOLDS == fold).collect()
    }

    /// Hosts that are not in a fold.
    pub(super) fn sites_outside_fold(&self, fold: u32) -> Vec<u32> {
        self.degrees.keys().copied().filter(|id| id % FOLDS != fold).collect()
    }

    /// Whether a host is a beacon of the fleet.
    pub(super) fn is_beacon(&self, site: u32, beacons: usize) -> bool {
        self.layouts[&beacons].site_ids.contains(&site)
    }

    /// Mean of the least round trips of both directions, milliseconds; `None` unless both were measured.
    pub(super) fn round_trip_ms(&self, one: u32, other: u32) -> Option<f64> {
        let directed = |from: u32, to: u32| self.directed_ms[from as usize * HOST_ID_END + to as usize];
        Some((directed(one, other)? + directed(other, one)?) / 2.0)
    }

    /// The same with the last miles of both.
    pub(super) fn round_trip_with_ms(&self, one: u32, other: u32, last_miles: &LastMiles) -> Option<f64> {
        Some(self.round_trip_ms(one, other)? + last_miles.0[one as usize] + last_miles.0[other as usize])
    }

    /// Fleet of `beacons` hosts; beacon ids are their ids.
    pub(super) fn fleet(&self, beacons: usize, constants: &PredictorConstants) -> BeaconFleet {
        let layout = &self.layouts[&beacons];
        let place = |[latitude, longitude]: [f64; 2]| Locality::from_degrees(latitude, longitude).unwrap();
        let with_ids = layout.site_ids.iter().zip(&layout.places);
        let live: Vec<Beacon> = with_ids.map(|(id, degrees)| Beacon { id: *id, place: place(*degrees) }).collect();
        let mut round_trips = Vec::new();
        for (from, row) in layout.site_ids.iter().zip(&layout.round_trips) {
            let known = layout.site_ids.iter().zip(row).filter(|(_, ms)| **ms < UNKNOWN_BEACON_PAIR_ROUND_TRIP_MS);
            round_trips.extend(known.map(|(to, ms)| BeaconPairRoundTrip { from: *from, to: *to, round_trip_ms: *ms }));
        }
        BeaconFleet::new(&live, &round_trips, *constants)
    }

    /// Parties at these hosts as they predict, and as others predict them. Without those that have too few floors.
    pub(super) fn parties(
        &self,
        fleet: &BeaconFleet,
        sites: &[u32],
        floors: usize,
        precision: PairPrecision,
        last_miles: &LastMiles,
    ) -> [Parties; 2] {
        let sides = match precision {
            PairPrecision::Exact => [Knowledge::Exact; 2],
            PairPrecision::Search => [Knowledge::Own, Knowledge::Published],
            PairPrecision::Queue => [Knowledge::Published; 2],
        };
        sides.map(|knowledge| {
            let party = |site: &u32| Some((*site, self.party(fleet, *site, floors, knowledge, last_miles)?));
            sites.iter().filter_map(party).collect()
        })
    }

    /// Places of a pair of a precision: of the predicting side and of the other.
    pub(super) fn places(&self, one: u32, other: u32, precision: PairPrecision) -> [Locality; 2] {
        let grids = match precision {
            PairPrecision::Exact => [0.0, 0.0],
            PairPrecision::Search => [DEFAULT_LOCATION_GRID_DEGREES, DEFAULT_SESSION_GRID_DEGREES],
            PairPrecision::Queue => [DEFAULT_SESSION_GRID_DEGREES; 2],
        };
        [self.place(one, grids[0]), self.place(other, grids[1])]
    }

    fn place(&self, site: u32, grid_degrees: f64) -> Locality {
        let (latitude, longitude) = self.degrees[&site];
        let (latitude, longitude) = snap_to_equal_width_grid(latitude, longitude, grid_degrees);
        Locality::from_degrees(latitude, longitude).unwrap()
    }

    fn party(
        &self,
        fleet: &BeaconFleet,
        site: u32,
        floors: usize,
        knowledge: Knowledge,
        last_miles: &LastMiles,
    ) -> Option<CompletedVector> {
        let exact = self.place(site, 0.0);
        let place = match knowledge {
            Knowledge::Exact => exact,
            Knowledge::Own => self.place(site, DEFAULT_LOCATION_GRID_DEGREES),
            Knowledge::Published => self.place(site, DEFAULT_SESSION_GRID_DEGREES),
        };
        let floor = |beacon_id: u32| {
            let floor_ms = self.round_trip_ms(site, beacon_id)? + last_miles.0[site as usize];
            Some(MeasuredBeaconFloor { beacon_id, floor_ms })
        };
        let mut floors: Vec<MeasuredBeaconFloor> =
            fleet.nearest_ids(place, floors).into_iter().filter_map(floor).collect();
        if knowledge == Knowledge::Published {
            floors = published_floors(fleet, &floors, exact, place);
        }
        CompletedVector::new(fleet, Some(place), &floors).ok()
    }
}

//! How good locality alone is, on real addresses and measured round trips: what probing the five nearest costs against
//! knowing the fastest.

use std::collections::BTreeMap;
use std::fs;

use fireteam::domain::locality::Locality;
use fireteam::geo::{GeoIpLocator, LocatorSettings};

use crate::shared_data::shared_data;

/// Its stated place is wrong: 44 of its round trips beat light in vacuum.
const MISPLACED: u32 = 220;
const SEARCHERS: usize = 200;
const PROBED: usize = 5;

struct World {
    /// A place for each measured site, by id, from the first of its addresses: where it searches from.
    sites: BTreeMap<u32, Locality>,
    /// Where others find it.
    shown: BTreeMap<u32, Locality>,
    round_trips_ms: BTreeMap<(u32, u32), f64>,
}

/// Searchers' places on a grid of `cell_degrees`, sessions' on one of `session_cell_degrees`.
fn world(cell_degrees: f64, session_cell_degrees: f64) -> Option<World> {
    let (addresses, latency) = (shared_data("ip-dbip-subset")?, shared_data("latency-wonderproxy")?);
    let file = addresses.join("dbip-city-lite-subset-geoip2-layout.mmdb");
    let locator = GeoIpLocator::load_files(
        &[file],
        LocatorSettings {
            grid_degrees: cell_degrees,
            session_grid_degrees: session_cell_degrees,
            ..LocatorSettings::default()
        },
    )
    .unwrap();
    let (mut sites, mut shown) = (BTreeMap::new(), BTreeMap::new());
    for line in fs::read_to_string(addresses.join("wonderproxy_site_ips.csv")).unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let id: u32 = fields[0].parse().unwrap();
        if id != MISPLACED && !sites.contains_key(&id) {
            let address = fields[3].parse().unwrap();
            sites.insert(id, locator.locate(address).unwrap());
            shown.insert(id, locator.locate_on_session_grid(address).unwrap());
        }
    }
    let mut round_trips_ms = BTreeMap::new();
    let pings = fs::read_to_string(latency.join("pings-2020-07-19-2020-07-20-grouped.csv")).unwrap();
    for line in pings.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        round_trips_ms.insert((fields[0].parse().unwrap(), fields[1].parse().unwrap()), fields[3].parse().unwrap());
    }
    Some(World { sites, shown, round_trips_ms })
}

impl World {
    /// The measured advertisers of a searcher, nearest first, ties by id (S1-26).
    fn by_locality(&self, searcher: u32) -> Vec<f64> {
        let here = self.sites[&searcher];
        let mut others: Vec<(f64, u32)> = self
            .shown
            .iter()
            .filter(|(id, _)| **id != searcher && self.round_trips_ms.contains_key(&(searcher, **id)))
            .map(|(id, there)| (here.chord_miles(*there), *id))
            .collect();
        others.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        others.iter().map(|(_, id)| self.round_trips_ms[&(searcher, *id)]).collect()
    }

    /// The mean over so many searchers of best probed minus best of all, milliseconds. Searchers are drawn without dice:
    /// ids in the order of their golden-ratio multiples, so that neither old nor new sites are preferred.
    fn mean_regret_ms(&self, searchers: usize, probed: usize) -> f64 {
        let best = |round_trips: &[f64]| round_trips.iter().copied().fold(f64::INFINITY, f64::min);
        let mut ids: Vec<u32> = self.sites.keys().copied().collect();
        ids.sort_by_key(|id| id.wrapping_mul(0x9e37_79b9));
        let regrets: Vec<f64> = ids
            .iter()
            .map(|searcher| self.by_locality(*searcher))
            .filter(|it| probed < it.len())
            .take(searchers)
            .map(|ordered| best(&ordered[..probed]) - best(&ordered))
            .collect();
        assert!(searchers.min(SEARCHERS) <= regrets.len());
        regrets.iter().sum::<f64>() / regrets.len() as f64
    }
}

fn mean_regret_ms(cell_degrees: f64, session_cell_degrees: f64) -> Option<f64> {
    let world = world(cell_degrees, session_cell_degrees)?;
    let (some, all) = (world.mean_regret_ms(SEARCHERS, PROBED), world.mean_regret_ms(usize::MAX, PROBED));
    println!(
        "cells {cell_degrees} and {session_cell_degrees} degrees: mean regret {some:.3} ms, {all:.3} ms over all sites"
    );
    Some(some.max(all))
}

/// S1-26, S1-28: 200 of the measured sites search, all others advertise, the five nearest are probed: the fastest of
/// them is at most 3.5 ms slower than the fastest there is, in the mean; over all sites, too. As looked up, and with the
/// default grids.
#[test]
fn probing_the_five_nearest_loses_little() {
    let usual = LocatorSettings::default();
    for (cell_degrees, session_cell_degrees) in [(0.0, 0.0), (usual.grid_degrees, usual.session_grid_degrees)] {
        let Some(regret) = mean_regret_ms(cell_degrees, session_cell_degrees) else { return };
        assert!(regret <= 3.5, "cells {cell_degrees} and {session_cell_degrees}: {regret} ms");
    }
}

/// The same sites in an order that knows nothing of places: the figure above is not won by chance.
#[test]
fn an_order_without_places_loses_much() {
    let Some(mut world) = world(0.0, 0.0) else { return };
    let nowhere = Locality::from_degrees(0.0, 0.0).unwrap();
    world.shown.values_mut().for_each(|place| *place = nowhere);
    assert!(20.0 < world.mean_regret_ms(SEARCHERS, PROBED));
}

/// Where searches are made from, finer cells than the default are as good as none.
#[test]
fn cells_of_a_degree_cost_next_to_nothing() {
    let Some(exact) = mean_regret_ms(0.0, 0.0) else { return };
    for cell_degrees in [0.25, 0.5, 1.0] {
        let Some(regret) = mean_regret_ms(cell_degrees, 0.0) else { return };
        assert!((regret - exact).abs() < 0.1, "cell {cell_degrees}: {regret} ms");
    }
}

/// What it costs that nobody can be found out: the five nearest by coarse places are half a millisecond slower than
/// the five nearest by exact ones, in the mean; of the twenty nearest, nothing.
#[test]
fn coarse_places_of_sessions_cost_little() {
    let Some(exact) = mean_regret_ms(0.0, 0.0) else { return };
    for session_cell_degrees in [2.0, 3.0, 4.0, 5.0] {
        let Some(regret) = mean_regret_ms(1.0, session_cell_degrees) else { return };
        if session_cell_degrees == LocatorSettings::default().session_grid_degrees {
            assert!(regret < exact + 0.5, "{regret} ms");
            let of_twenty = |world: Option<World>| world.map(|it| it.mean_regret_ms(usize::MAX, 20)).unwrap();
            let (coarse, exact) = (of_twenty(world(1.0, session_cell_degrees)), of_twenty(world(0.0, 0.0)));
            println!("of twenty: {coarse:.3} ms, {exact:.3} ms by exact places");
            assert!((coarse - exact).abs() < 0.1);
        }
    }
}

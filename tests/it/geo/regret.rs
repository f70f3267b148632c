//! Quality of the locality order on real addresses and measured round trips: the latency lost by probing the five
//! nearest hosts instead of all.

use std::collections::BTreeMap;
use std::fs;

use fireteam::domain::locality::Locality;
use fireteam::geo::{GeoIpLocator, LocatorSettings};

use crate::support::shared_data::shared_data;

/// Site with a wrong location: 44 of its round trips are faster than light in vacuum.
const MISPLACED_SITE_ID: u32 = 220;
const SEARCHER_COUNT: usize = 200;
const PROBED_COUNT: usize = 5;

pub(crate) struct MeasuredSites {
    /// Location that each site searches from, by site id, from the first of its addresses.
    pub(crate) searcher_localities: BTreeMap<u32, Locality>,
    /// Location at which others find each site.
    pub(crate) session_localities: BTreeMap<u32, Locality>,
    pub(crate) round_trips_ms: BTreeMap<(u32, u32), f64>,
}

/// Loads the sites; searchers' locations on a grid of `location_grid_degrees`, sessions' on one of
/// `session_location_grid_degrees`.
pub(crate) fn load_measured_sites(
    location_grid_degrees: f64,
    session_location_grid_degrees: f64,
) -> Option<MeasuredSites> {
    let (addresses, latency) = (shared_data("ip-dbip-subset")?, shared_data("latency-wonderproxy")?);
    let file = addresses.join("dbip-city-lite-subset-geoip2-layout.mmdb");
    let locator = GeoIpLocator::load_files(
        &[file],
        LocatorSettings {
            grid_degrees: location_grid_degrees,
            session_grid_degrees: session_location_grid_degrees,
            ..LocatorSettings::default()
        },
    )
    .unwrap();
    let (mut sites, mut shown) = (BTreeMap::new(), BTreeMap::new());
    for line in fs::read_to_string(addresses.join("wonderproxy_site_ips.csv")).unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let id: u32 = fields[0].parse().unwrap();
        if id != MISPLACED_SITE_ID && !sites.contains_key(&id) {
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
    Some(MeasuredSites { searcher_localities: sites, session_localities: shown, round_trips_ms })
}

impl MeasuredSites {
    /// Round trips to the measured sites in locality order: nearest first, ties by id (S1-26).
    fn round_trips_by_locality(&self, searcher: u32) -> Vec<f64> {
        let here = self.searcher_localities[&searcher];
        let mut others: Vec<(f64, u32)> = self
            .session_localities
            .iter()
            .filter(|(id, _)| **id != searcher && self.round_trips_ms.contains_key(&(searcher, **id)))
            .map(|(id, there)| (here.chord_miles(*there), *id))
            .collect();
        others.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        others.iter().map(|(_, id)| self.round_trips_ms[&(searcher, *id)]).collect()
    }

    /// Mean difference between the best probed and the best of all round trips, milliseconds. Searchers are chosen
    /// without randomness: ids in the order of their golden-ratio multiples, so old and new sites are equally likely.
    pub(crate) fn mean_regret_ms(&self, searchers: usize, probed: usize) -> f64 {
        let best = |round_trips: &[f64]| round_trips.iter().copied().fold(f64::INFINITY, f64::min);
        let mut ids: Vec<u32> = self.searcher_localities.keys().copied().collect();
        ids.sort_by_key(|id| id.wrapping_mul(0x9e37_79b9));
        let regrets: Vec<f64> = ids
            .iter()
            .map(|searcher| self.round_trips_by_locality(*searcher))
            .filter(|round_trips| probed < round_trips.len())
            .take(searchers)
            .map(|ordered| best(&ordered[..probed]) - best(&ordered))
            .collect();
        assert!(searchers.min(SEARCHER_COUNT) <= regrets.len());
        regrets.iter().sum::<f64>() / regrets.len() as f64
    }
}

fn mean_regret_ms(location_grid_degrees: f64, session_location_grid_degrees: f64) -> Option<f64> {
    let sites = load_measured_sites(location_grid_degrees, session_location_grid_degrees)?;
    let (of_some, of_all) =
        (sites.mean_regret_ms(SEARCHER_COUNT, PROBED_COUNT), sites.mean_regret_ms(usize::MAX, PROBED_COUNT));
    println!(
        "cells {location_grid_degrees} and {session_location_grid_degrees} degrees: mean regret {of_some:.3} ms, {of_all:.3} ms over all sites"
    );
    Some(of_some.max(of_all))
}

/// S1-26, S1-28: 200 sites search, all others advertise, the five nearest are probed. The best of them is at most 3.5
/// ms slower than the best of all, in the mean; also over all sites. With exact locations and with the default grids.
#[test]
fn locality_order_with_five_probes_costs_at_most_3_5_ms() {
    let defaults = LocatorSettings::default();
    for (location_grid_degrees, session_location_grid_degrees) in
        [(0.0, 0.0), (defaults.grid_degrees, defaults.session_grid_degrees)]
    {
        let Some(regret) = mean_regret_ms(location_grid_degrees, session_location_grid_degrees) else { return };
        assert!(regret <= 3.5, "cells {location_grid_degrees} and {session_location_grid_degrees}: {regret} ms");
    }
}

/// The same with an order that ignores locations: the result above is not chance.
#[test]
fn order_without_locality_costs_more_than_20_ms() {
    let Some(mut sites) = load_measured_sites(0.0, 0.0) else { return };
    let same_locality = Locality::from_degrees(0.0, 0.0).unwrap();
    sites.session_localities.values_mut().for_each(|locality| *locality = same_locality);
    assert!(sites.mean_regret_ms(SEARCHER_COUNT, PROBED_COUNT) > 20.0);
}

/// For searchers, finer cells than the default are no better.
#[test]
fn location_grid_of_one_degree_costs_less_than_0_1_ms() {
    let Some(exact) = mean_regret_ms(0.0, 0.0) else { return };
    for location_grid_degrees in [0.25, 0.5, 1.0] {
        let Some(regret) = mean_regret_ms(location_grid_degrees, 0.0) else { return };
        assert!((regret - exact).abs() < 0.1, "cell {location_grid_degrees}: {regret} ms");
    }
}

/// Cost of the session grid, which hides exact locations: with five probes half a millisecond in the mean, with twenty
/// probes nothing.
#[test]
fn session_location_grid_costs_less_than_0_5_ms() {
    let Some(exact) = mean_regret_ms(0.0, 0.0) else { return };
    for session_location_grid_degrees in [2.0, 3.0, 4.0, 5.0] {
        let Some(regret) = mean_regret_ms(1.0, session_location_grid_degrees) else { return };
        if session_location_grid_degrees == LocatorSettings::default().session_grid_degrees {
            assert!(regret < exact + 0.5, "{regret} ms");
            let of_twenty =
                |sites: Option<MeasuredSites>| sites.map(|sites| sites.mean_regret_ms(usize::MAX, 20)).unwrap();
            let (coarse, exact) = (
                of_twenty(load_measured_sites(1.0, session_location_grid_degrees)),
                of_twenty(load_measured_sites(0.0, 0.0)),
            );
            println!("of twenty: {coarse:.3} ms, {exact:.3} ms by exact locations");
            assert!((coarse - exact).abs() < 0.1);
        }
    }
}

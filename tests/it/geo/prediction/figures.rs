//! Figures of a fold: errors and regret of predictions and of geography, and the share of round trips in the interval.

use fireteam::domain::latency::beacon_fleet::BeaconFleet;
use fireteam::domain::latency::prediction::{PairPrecision, predict};
use fireteam::domain::latency::predictor_constants::PredictorConstants;
use fireteam::domain::location_privacy::arc_km;

use crate::geo::prediction::measured_hosts::{FleetSize, LastMiles, MeasuredHosts, Parties};

/// Hosts that a searcher probes, best first.
const PROBED_COUNTS: [usize; 3] = [1, 3, 5];

/// Errors of one estimate over all pairs, and regrets over all searchers, milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ErrorFigures {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p95: f64,
    /// Mean excess of the best probed over the best of all: of the first, of three and of five probed.
    pub(super) regrets: [f64; 3],
}

/// Figures of one fold.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// Ordered pairs.
    pub(super) pairs: usize,
    pub(super) sites: usize,
    /// Pairs without a prediction, which are estimated by geography.
    pub(super) unpredicted: usize,
    pub(super) geography: ErrorFigures,
    pub(super) predicted: ErrorFigures,
    /// Share of the predicted pairs whose round trip is in the interval.
    pub(super) interval_coverage: f64,
    pub(super) interval_width_p50: f64,
}

/// One candidate of a searcher.
struct Candidate {
    site: u32,
    measured_ms: f64,
    geography_ms: f64,
    predicted_ms: f64,
    interval: Option<[f64; 2]>,
}

/// Figures of searches of each host of a fold among all others of it, without beacons; once with each of `last_miles`. The line
/// over the distance estimates pairs of which one side has too few floors.
pub(super) fn figures(
    hosts: &MeasuredHosts,
    fold: u32,
    size: FleetSize,
    precision: PairPrecision,
    last_miles: &[LastMiles],
    constants: &PredictorConstants,
) -> Figures {
    let fleet = hosts.fleet(size.beacons, constants);
    let sites = hosts.sites_of_fold(fold).into_iter().filter(|site| !hosts.is_beacon(*site, size.beacons));
    let sites: Vec<u32> = sites.collect();
    let mut searches = Vec::new();
    for last_miles in last_miles {
        let sides = hosts.parties(&fleet, &sites, size.floors, precision, last_miles);
        searches.extend(searches_of(hosts, &fleet, &sites, &sides, precision, last_miles));
    }
    let all = || searches.iter().flatten();
    let intervals: Vec<(f64, [f64; 2])> = all().filter_map(|it| Some((it.measured_ms, it.interval?))).collect();
    let inside = intervals.iter().filter(|(ms, [low_ms, high_ms])| low_ms <= ms && ms <= high_ms).count();
    let mut widths: Vec<f64> = intervals.iter().map(|(_, [low_ms, high_ms])| high_ms - low_ms).collect();
    widths.sort_by(f64::total_cmp);
    Figures {
        pairs: all().count(),
        sites: sites.len(),
        unpredicted: all().count() - intervals.len(),
        geography: error_figures(&searches, |it| it.geography_ms),
        predicted: error_figures(&searches, |it| it.predicted_ms),
        interval_coverage: inside as f64 / intervals.len() as f64,
        interval_width_p50: percentile(&widths, 0.5),
    }
}

/// Candidates of each searcher.
fn searches_of(
    hosts: &MeasuredHosts,
    fleet: &BeaconFleet,
    sites: &[u32],
    [predicting, predicted]: &[Parties; 2],
    precision: PairPrecision,
    last_miles: &LastMiles,
) -> Vec<Vec<Candidate>> {
    let constants = fleet.constants();
    let candidate = |searcher: u32, site: u32| {
        let measured_ms = hosts.round_trip_with_ms(searcher, site, last_miles)?;
        let [here, there] = hosts.places(searcher, site, precision);
        let geography_ms = constants.line[0] + constants.line[1] * arc_km(here, there);
        let vectors = predicting.get(&searcher).zip(predicted.get(&site));
        let prediction = vectors.map(|(own, theirs)| predict(fleet, own, theirs, precision).expect("one fleet"));
        Some(Candidate {
            site,
            measured_ms,
            geography_ms,
            predicted_ms: prediction.map_or(geography_ms, |it| it.round_trip_ms),
            interval: prediction.map(|it| [it.low_ms, it.high_ms]),
        })
    };
    let candidates = |searcher: &u32| {
        let others = sites.iter().filter(|site| *site != searcher);
        others.filter_map(|site| candidate(*searcher, *site)).collect()
    };
    sites.iter().map(candidates).collect()
}

fn error_figures(searches: &[Vec<Candidate>], estimate_ms: impl Fn(&Candidate) -> f64) -> ErrorFigures {
    let mut errors: Vec<f64> = searches.iter().flatten().map(|it| (estimate_ms(it) - it.measured_ms).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let mut regrets = [0.0; 3];
    for candidates in searches {
        let mut order: Vec<&Candidate> = candidates.iter().collect();
        order.sort_by(|one, other| estimate_ms(one).total_cmp(&estimate_ms(other)).then(one.site.cmp(&other.site)));
        let best_ms = |order: &[&Candidate]| order.iter().map(|it| it.measured_ms).fold(f64::INFINITY, f64::min);
        for (regret, probed) in regrets.iter_mut().zip(PROBED_COUNTS) {
            *regret += (best_ms(&order[..probed]) - best_ms(&order)) / searches.len() as f64;
        }
    }
    ErrorFigures {
        p50: percentile(&errors, 0.5),
        p90: percentile(&errors, 0.9),
        p95: percentile(&errors, 0.95),
        regrets,
    }
}

/// Percentile of sorted values, between the two nearest ranks.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = last as f64 * share;
    let (below, part) = (position.floor() as usize, position.fract());
    sorted[below] + part * (sorted[(below + 1).min(last)] - sorted[below])
}

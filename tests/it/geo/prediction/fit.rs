//! Fit of the predictor's constants: least absolute error by iteratively reweighted least squares.

use fireteam::domain::latency::prediction::{PairPrecision, Prediction, predict};
use fireteam::domain::latency::predictor_constants::{
    ERROR_SCALE_MS_MIN, IntervalConstants, PREDICTOR_V1, PredictorConstants,
};
use fireteam::domain::location_privacy::arc_km;

use crate::geo::prediction::figures::percentile;
use crate::geo::prediction::measured_hosts::{FleetSize, LastMiles, MeasuredHosts};
use crate::geo::prediction::{FLEET_SIZES, PRECISIONS};

/// Fleets over which both models are fitted.
const MODEL_FLEET_SIZES: [FleetSize; 5] = [
    FleetSize::new(12, 8),
    FleetSize::new(16, 8),
    FleetSize::new(16, 12),
    FleetSize::new(24, 12),
    FleetSize::new(32, 12),
];
const REWEIGHTINGS: usize = 30;
/// Least error by which a row is weighted, milliseconds.
const RESIDUAL_MS_MIN: f64 = 0.5;
/// Longest distance of the pairs of the near model, kilometers.
const NEAR_KM_MAX: f64 = 1_500.0;
/// Ends of the interval among the errors.
const INTERVAL_SHARES: [f64; 2] = [0.045, 0.955];
/// Seed of the invented last miles of the fit.
const LAST_MILES_SEED: u64 = 77;

/// Fits all constants to pairs of hosts outside `fold`.
pub(super) fn fitted_constants(hosts: &MeasuredHosts, fold: u32) -> PredictorConstants {
    let sites = hosts.sites_outside_fold(fold);
    let mut constants = PredictorConstants { floors_min: 1, ..PREDICTOR_V1 };
    constants.line = fitted_line(hosts, &sites);
    let last_miles = [LastMiles::none(), LastMiles::random(LAST_MILES_SEED)];
    let (mut far, mut near) = (Regression::default(), Regression::default());
    for size in MODEL_FLEET_SIZES {
        for last_miles in &last_miles {
            for_each_pair(hosts, &sites, size, PairPrecision::Exact, last_miles, &constants, |pair, ms| {
                let parts = pair.intermediates;
                far.push([1.0, parts.arc_km, parts.best_route_ms, parts.mean_residual_ms], ms);
                if parts.arc_km < NEAR_KM_MAX {
                    near.push([1.0, parts.arc_km, parts.access_ms[0] + parts.access_ms[1]], ms);
                }
            });
        }
    }
    (constants.far, constants.near) = (far.least_absolute_error(), near.least_absolute_error());
    let [exact, search, queue] =
        PRECISIONS.map(|precision| fitted_interval(hosts, &sites, precision, &last_miles, &constants));
    PredictorConstants { exact, search, queue, ..constants }
}

/// Line over the distance, as measured between exact places.
fn fitted_line(hosts: &MeasuredHosts, sites: &[u32]) -> [f64; 2] {
    let mut line = Regression::default();
    for (at, one) in sites.iter().enumerate() {
        for other in &sites[..at] {
            let [here, there] = hosts.places(*one, *other, PairPrecision::Exact);
            if let Some(ms) = hosts.round_trip_ms(*one, *other) {
                line.push([1.0, arc_km(here, there)], ms);
            }
        }
    }
    line.least_absolute_error()
}

/// Scale and ends of the interval of a precision.
fn fitted_interval(
    hosts: &MeasuredHosts,
    sites: &[u32],
    precision: PairPrecision,
    last_miles: &[LastMiles],
    constants: &PredictorConstants,
) -> IntervalConstants {
    let mut errors = Regression::default();
    let mut signed_ms = Vec::new();
    for size in FLEET_SIZES {
        for last_miles in last_miles {
            for_each_pair(hosts, sites, size, precision, last_miles, constants, |pair, ms| {
                let excess_ms = (pair.intermediates.best_route_ms - pair.round_trip_ms).max(0.0);
                errors.push([1.0, pair.round_trip_ms, excess_ms], (ms - pair.round_trip_ms).abs());
                signed_ms.push(ms - pair.round_trip_ms);
            });
        }
    }
    let scale = errors.least_absolute_error();
    let of_scale = errors.rows.iter().zip(&signed_ms).map(|((row, _), error_ms)| {
        error_ms / (scale[0] + scale[1] * row[1] + scale[2] * row[2]).max(ERROR_SCALE_MS_MIN)
    });
    let mut of_scale: Vec<f64> = of_scale.collect();
    of_scale.sort_by(f64::total_cmp);
    let slack_ms = match precision {
        PairPrecision::Exact => constants.exact.slack_ms,
        PairPrecision::Search => constants.search.slack_ms,
        PairPrecision::Queue => constants.queue.slack_ms,
    };
    IntervalConstants {
        slack_ms,
        error_scale: scale,
        quantiles: INTERVAL_SHARES.map(|share| percentile(&of_scale, share)),
    }
}

/// Calls `row` with each pair of hosts that are no beacons of the fleet, and its measured round trip.
fn for_each_pair(
    hosts: &MeasuredHosts,
    sites: &[u32],
    size: FleetSize,
    precision: PairPrecision,
    last_miles: &LastMiles,
    constants: &PredictorConstants,
    mut row: impl FnMut(Prediction, f64),
) {
    let fleet = hosts.fleet(size.beacons, constants);
    let sites: Vec<u32> = sites.iter().copied().filter(|site| !hosts.is_beacon(*site, size.beacons)).collect();
    let [predicting, predicted] = hosts.parties(&fleet, &sites, size.floors, precision, last_miles);
    for (one, own) in &predicting {
        for (other, theirs) in predicted.range(one + 1..) {
            if let Some(ms) = hosts.round_trip_with_ms(*one, *other, last_miles) {
                row(predict(&fleet, own, theirs, precision).unwrap(), ms);
            }
        }
    }
}

/// Rows of a linear model: values and the target.
struct Regression<const N: usize> {
    rows: Vec<([f64; N], f64)>,
}

impl<const N: usize> Default for Regression<N> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<const N: usize> Regression<N> {
    fn push(&mut self, values: [f64; N], target: f64) {
        self.rows.push((values, target));
    }

    /// Coefficients of the least sum of absolute errors.
    fn least_absolute_error(&self) -> [f64; N] {
        let mut coefficients = self.weighted_least_squares(None);
        for _ in 0..REWEIGHTINGS {
            coefficients = self.weighted_least_squares(Some(&coefficients));
        }
        coefficients
    }

    /// Coefficients of the least sum of squares, where each row has the weight 1 / |error| by `known` coefficients.
    fn weighted_least_squares(&self, known: Option<&[f64; N]>) -> [f64; N] {
        let (mut normal, mut right) = ([[0.0; N]; N], [0.0; N]);
        for (values, target) in &self.rows {
            let mut weight = 1.0;
            if let Some(known) = known {
                let mut error = *target;
                for at in 0..N {
                    error -= known[at] * values[at];
                }
                weight = 1.0 / error.abs().max(RESIDUAL_MS_MIN);
            }
            for row in 0..N {
                let weighted = weight * values[row];
                right[row] += weighted * target;
                for column in 0..N {
                    normal[row][column] += weighted * values[column];
                }
            }
        }
        solved(normal, right)
    }
}

/// Solution of a linear system, by elimination with the largest pivot of each column.
fn solved<const N: usize>(mut left: [[f64; N]; N], mut right: [f64; N]) -> [f64; N] {
    for column in 0..N {
        let pivot = (column..N).max_by(|a, b| left[*a][column].abs().total_cmp(&left[*b][column].abs())).unwrap();
        left.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..N {
            let factor = left[row][column] / left[column][column];
            let above = left[column];
            left[row].iter_mut().zip(above).for_each(|(value, above)| *value -= factor * above);
            right[row] -= factor * right[column];
        }
    }
    for row in (0..N).rev() {
        for at in row + 1..N {
            right[row] -= left[row][at] * right[at];
        }
        right[row] /= left[row][row];
    }
    right
}

//! Constants of the round trip predictor, by version. The constants of a version never change; a new fit is a new version.

/// Constants of one version of the predictor. All are finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictorConstants {
    /// Line over the distance along the surface: milliseconds at distance 0, milliseconds per kilometer.
    pub line: [f64; 2],
    /// Far model: milliseconds; milliseconds per kilometer; shares of the upper estimate and of the middle residual, 0 or
    /// more.
    pub far: [f64; 4],
    /// Near model: milliseconds; milliseconds per kilometer; share of the sum of both accesses.
    pub near: [f64; 3],
    /// Intervals where both sides have exact places and floors.
    pub exact: IntervalConstants,
    /// Intervals where one side has its own exact floors, and the other published ones.
    pub search: IntervalConstants,
    /// Intervals where both sides have published floors.
    pub queue: IntervalConstants,
    /// Live beacons that a fleet must have.
    pub beacons_min: usize,
    /// Pairs of beacons whose round trip must be known, percent of all pairs, 0 to 100.
    pub known_pairs_percent_min: usize,
    /// Beacons of the fleet to which a party must have floors; 0 counts as 1.
    pub floors_min: usize,
}

/// Constants of the intervals in one condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalConstants {
    /// Milliseconds by which rounded floors may miss the two bounds; 0 or more.
    pub slack_ms: f64,
    /// Scale of the error: milliseconds; shares of the round trip and of the upper estimate's excess over it.
    pub error_scale: [f64; 3],
    /// Low and high ends of the interval in scales: the 4.5 and 95.5 percentiles; the first below 0, the second above.
    pub quantiles: [f64; 2],
}

/// Least scale of the error, milliseconds.
pub const ERROR_SCALE_MS_MIN: f64 = 2.0;

/// Version 1: fitted to round trips that WonderProxy measured between its hosts on 2020-07-19, least of the day, mean of
/// both directions. Hosts whose id is divisible by 5 took no part. Least absolute error over pairs that are no beacons,
/// over fleets of 12 to 32 beacons with 8 or 12 floors each; each fleet once as measured and once with an invented last
/// mile (log-normal, 12 ms, sigma 0.6). The near model is fitted below 1500 km. Nine of ten measured round trips
/// are within the interval. The minimums are from the same data: below them distance alone is as good.
pub const PREDICTOR_V1: PredictorConstants = PredictorConstants {
    line: [14.1456, 0.016567],
    far: [2.54114, 0.00542558, 0.67139, 0.346952],
    near: [32.2039, 0.0166146, 0.790226],
    exact: IntervalConstants {
        slack_ms: 0.0,
        error_scale: [0.802471, 0.0403466, 0.248002],
        quantiles: [-3.11731, 4.35587],
    },
    search: IntervalConstants {
        slack_ms: 12.5,
        error_scale: [2.0489, 0.0427542, 0.209638],
        quantiles: [-2.95347, 3.74097],
    },
    queue: IntervalConstants {
        slack_ms: 25.0,
        error_scale: [3.52373, 0.0417714, 0.165274],
        quantiles: [-2.82028, 3.58167],
    },
    beacons_min: 12,
    known_pairs_percent_min: 90,
    floors_min: 8,
};

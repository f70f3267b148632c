//! Columns of published beacon vectors: what bounds predictions to a row, and whether its vector counts.

use crate::latency::beacon_fleet::is_valid_round_trip;
use crate::latency::beacon_vector::floors_of_published;
use crate::ruleset::probing::LatencyTrust;
use crate::session::Session;
use crate::time::UnixMs;

/// Number of float columns after that of `LeastPathExcess::near_ms`, which the tree splits along.
pub(super) const COUNT: usize = 3;
/// Offset of `LeastPathExcess::light_ms`; NaN without a vector.
pub(super) const LIGHT_EXCESS: usize = 0;
/// Offset of the tick from which on the vector may not count, rounded down; 0 if it never counts.
pub(super) const COUNTS_UNTIL: usize = 1;
/// Offset of the number of floors; 0 without a vector.
pub(super) const FLOOR_COUNT: usize = 2;

/// `LeastPathExcess::near_ms` of a session; NaN without a vector.
pub(super) fn near_excess_of(session: &Session) -> f32 {
    session.published_beacon_vector().map_or(f32::NAN, |vector| vector.least_path_excess().near_ms)
}

/// Values of the other columns of a session, in an index that has these ticks.
pub(super) fn values_of(session: &Session, trust: LatencyTrust, tick_of: impl Fn(UnixMs) -> u32) -> [f32; COUNT] {
    let Some(vector) = session.published_beacon_vector() else { return [f32::NAN, 0.0, 0.0] };
    let excess = vector.least_path_excess();
    let counts = vector.is_trusted(trust) && session.locality.is_some();
    let until = if counts { round_down(tick_of(vector.expires_at())) } else { 0.0 };
    let floor_count = floors_of_published(vector).iter().filter(|floor| is_valid_round_trip(floor.floor_ms)).count();
    [excess.light_ms, until, floor_count as f32]
}

/// Largest f32 that is not above a tick.
fn round_down(tick: u32) -> f32 {
    let rounded = tick as f32;
    if f64::from(tick) < f64::from(rounded) { rounded.next_down() } else { rounded }
}

//! Measurement of beacons by a client: asks the server which there are, exchanges packets with the nearest, and reports their receipts.
//! The answer is a latency token, which proves the client's round trips to the server in searches, advertisements and queues.
//!
//! [`Beacons`] is a state machine without socket, clock, connection or runtime, and is driven like
//! [`Matching`](crate::matching::Matching). It keeps the token fresh by measuring again.
//! [`MatchingRun::with_beacon_measurement`](crate::matching_run::MatchingRun::with_beacon_measurement),
//! [`QueueingRun::with_beacon_measurement`](crate::queueing_run::QueueingRun::with_beacon_measurement) and
//! [`Client::measure_beacons`](crate::Client::measure_beacons) drive it on a tokio runtime.

mod beacon_order;
mod call;
mod machine;
mod measurement;

pub use call::{BeaconsAnswer, BeaconsCall, BeaconsRequest};
pub use machine::{Beacons, BeaconsEvent, BeaconsState};

#[cfg(test)]
mod tests;

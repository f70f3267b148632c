//! Queue simulator: runs a generated population through a ruleset in simulated time. Passes, match lifecycles and
//! ratings are the server's own, from `domain`. Generated are arrivals, patience, ready check responses and true skill.
//!
//! A world is built from a scenario, a seed and a ruleset. The same three give the same report, byte for byte. Behavior
//! is drawn from its own random streams, so two rulesets are compared on the same players at the same times.
//!
//! Searches of sessions are simulated apart from the queue, with the client's own search loop and its packets.

pub mod city_map;
pub mod comparison;
pub mod event_queue;
pub mod ground_truth;
pub mod latency_matrix;
pub mod latency_source;
mod percentiles;
pub mod population;
pub mod rating_study;
pub mod rng;
mod round_trips;
pub mod scenario;
pub mod search_map;
pub mod search_statistics;
pub mod search_tally;
pub mod search_world;
pub mod statistics;
pub mod tally;
pub mod world;

/// Invalid scenario, ruleset or input file of a simulation, with the valid values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(pub String);

impl ScenarioError {
    /// Error with this message: what is wrong, and what to do.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

//! Plays a population through a ruleset in invented time: the very passes, lives of matches and ratings that the server runs, from
//! `domain`; what is invented is who comes, when, how patient they are and how good they really are.
//!
//! A world is made of a scenario, a seed and a ruleset. Same three, same report, byte for byte. What people do is drawn from dice
//! of their own, so that two rulesets are tried on the same people at the same hours with the same patience.

pub mod city_map;
pub mod comparison;
pub mod event_queue;
pub mod ground_truth;
pub mod latency_matrix;
pub mod population;
pub mod rating_study;
pub mod rng;
pub mod scenario;
pub mod statistics;
pub mod tally;
pub mod world;

/// Why something cannot be simulated, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(pub String);

impl ScenarioError {
    /// `what` is wrong; says what would be right as well.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

//! What the matchmaker decides: plain functions over plain values, with no IO, no clock and no dice of their own.

pub mod advertisement;
pub mod attribute;
pub mod coarse;
pub mod expansion;
pub mod facts;
pub mod filter;
pub mod id;
pub mod index;
pub mod latency;
pub mod life;
pub mod limit;
pub mod locality;
pub mod matching;
pub mod measure;
pub mod queue;
pub mod rating;
pub mod result;
pub mod role;
pub mod ruleset;
pub mod score;
pub mod session;
pub mod team;
pub mod time;

//! Matchmaking rules as pure functions: no IO, no clock, no random numbers of their own.

pub mod advertisement;
pub mod attribute;
pub mod attribute_values;
pub mod available_time;
pub mod erasure;
pub mod expansion;
pub mod filter;
pub mod id;
pub mod index;
pub mod latency;
pub mod lifecycle;
pub mod limit;
pub mod locality;
pub mod location_privacy;
pub mod match_result;
pub mod matching;
pub mod matchmaking_action;
pub mod measure;
mod order;
pub mod player_standing;
pub mod queue;
pub mod rating;
pub mod ruleset;
pub mod score;
pub mod session;
pub mod team;
pub mod time;

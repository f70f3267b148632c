//! Search loop of a client: search, probe, report, reserve and join, or advertise and wait for others.
//!
//! [`Matching`] is the loop as a state machine. It has no socket, no clock, no connection and no runtime of its own:
//!
//! 1. Give it each [`Event`] with the time at which it happened: [`Matching::handle`].
//! 2. Then carry out all that it asks for: [`Matching::poll_call`], [`Matching::poll_transmit`] and [`Matching::poll_outcome`], each until
//!    it returns `None`.
//! 3. Wait for the next event, at the latest until [`Matching::poll_timeout`]; then give it [`Event::Timeout`].
//!
//! [`Client::matching_run`](crate::Client::matching_run) does so on a tokio runtime with a UDP socket. docs/CLIENTS.md describes the states.

mod advertising;
mod call;
pub(crate) mod call_table;
mod effects;
mod event;
mod exclusions;
mod latency_report;
mod machine;
mod monotonic_time;
mod options;
mod outcome;
mod packet_budget;
mod probe_phase;
mod repetition;
mod round;
mod search_memory;
mod stage;

pub use call::{Answer, Call, CallError, CallId, Request};
pub use event::Event;
pub use machine::{Matching, ProberDataJudge};
pub use monotonic_time::MonotonicTime;
pub use options::{HostedSession, MatchingOptions};
pub use outcome::{AdvertisedSession, ConnectTarget, EndReason, Outcome, Transmit};
pub(crate) use packet_budget::PacketBudget;
pub use stage::MatchingState;

#[cfg(test)]
mod tests;

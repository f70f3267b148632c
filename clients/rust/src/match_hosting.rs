//! Host of matches without a runtime: confirms the matches of an advertisement, keeps them alive, ends them, and reports their results
//! through outages.
//!
//! [`MatchHosting`] is a state machine without socket, clock or runtime, and is driven like [`Matching`](crate::matching::Matching).
//! [`MatchHost`](crate::MatchHost) makes the same heartbeats as single calls.

mod call;
mod event;
pub(crate) mod hosted_matches;
mod machine;

pub use call::{HostAnswer, HostCall, HostRequest};
pub use event::{HostEnd, HostingEvent, HostingOutcome, HostingState};
pub use machine::MatchHosting;

#[cfg(test)]
mod tests;

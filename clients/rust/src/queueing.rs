//! Queue loop of a client: enter, watch through outages, answer ready checks, connect, and report the result.
//!
//! [`Queueing`] is the loop as a state machine without socket, clock or runtime, and is driven like
//! [`Matching`](crate::matching::Matching). [`Client::queueing_run`](crate::Client::queueing_run) drives it on a tokio runtime.

mod call;
mod event;
mod machine;
mod saved;
mod token_renewal;

pub use call::{QueueAnswer, QueueCall, QueueRequest};
pub use event::{QueueEnd, QueueEvent, QueueOutcome, QueueingState};
pub use machine::Queueing;

#[cfg(test)]
mod tests;

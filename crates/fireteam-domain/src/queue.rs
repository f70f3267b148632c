//! Puts waiting parties together: tickets, a ruleset, a moment and dice in; proposals and a report out.

pub mod avoidance;
pub mod backfill;
mod candidate_match;
mod duel_fast_path;
pub mod explain;
mod filter_columns;
pub mod gate;
#[cfg(test)]
mod oracle;
pub mod pass;
mod pass_progress;
mod pass_state;
pub mod prepared_ticket;
pub mod proposal;
pub mod quality;
pub mod rating_group;
mod region;
pub mod report;
mod rng;
pub mod satisfaction;
mod select;
#[cfg(test)]
mod tests;
pub mod ticket;
mod waiting_list;
pub mod window;

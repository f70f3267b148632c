//! Queue matchmaking: passes that turn waiting tickets into match proposals, and explanations for tickets that wait.

pub mod avoidance;
pub mod backfill;
mod candidate_match;
mod duel_fast_path;
pub mod entry;
pub mod explain;
mod filter_columns;
pub mod gate;
pub mod input;
#[cfg(test)]
mod oracle;
pub mod outcome;
pub mod pass;
pub mod pass_memory;
mod pass_progress;
mod pass_state;
pub mod pass_timing;
pub mod past_match_log;
pub mod placement;
pub mod prepared_ticket;
pub mod proposal;
pub mod quality;
pub mod queue_without_matches;
pub mod rating_group;
mod refusal_majority;
mod region;
pub mod report;
mod rng;
pub mod seat_vectors;
pub mod seated_party;
mod select;
mod team_order;
#[cfg(test)]
mod tests;
pub mod ticket;
pub mod ticket_vector;
pub mod trial;
pub mod user_filter;
mod waiting_list;
pub mod window;

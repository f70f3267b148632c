//! Tests of passes: scenarios, explanations, and comparison with the reference implementation.

mod backfill;
mod bots;
mod choices;
mod explain_reports;
mod failed_searches;
pub(super) mod fixture;
mod newcomers;
mod oracle_comparison;
mod player_details;
mod predictions;
mod random_vectors;
mod random_wishes;
mod scenarios;
mod search_agreement;

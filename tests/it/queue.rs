//! Queues: tickets, passes, matches, documented systems.

pub(crate) mod abandonment;
pub(crate) mod agones_allocator;
pub(crate) mod allocation;
pub(crate) mod available_time;
pub(crate) mod connected_players;
pub(crate) mod documented_goals;
pub(crate) mod documented_systems;
pub(crate) mod end_to_end;
pub(crate) mod hosted_matches;
pub(crate) mod hosting;
pub(crate) mod kill_server;
pub(crate) mod leaving;
pub(crate) mod operator_actions;
pub(crate) mod pass_failures;
pub(crate) mod pass_timing;
pub(crate) mod past_match_retention;
pub(crate) mod placement;
pub(crate) mod preferences;
pub(crate) mod replay;
pub(crate) mod ruleset_removal;
pub(crate) mod ruleset_retirement;
pub(crate) mod runner_wakeups;
pub(crate) mod team_vectors;
pub(crate) mod tickets;
pub(crate) mod transition_races;
pub(crate) mod vectors;

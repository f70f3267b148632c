//! The store: fixed and random sequences on every backend, crashes, replicas.

pub(crate) mod advert_contract;
pub(crate) mod advert_model;
pub(crate) mod advert_rows;
pub(crate) mod advisory_locks;
pub(crate) mod change_feed;
pub(crate) mod connected_users;
pub(crate) mod expiry_during_outage;
pub(crate) mod kill_server;
pub(crate) mod match_results;
pub(crate) mod newer_server;
pub(crate) mod queue_contract;
mod queue_leases;
pub(crate) mod queue_model;
mod queue_replicas;
pub(crate) mod queue_rows;
pub(crate) mod random_advert_sequences;
pub(crate) mod random_caller;
pub(crate) mod random_queue_sequences;
pub(crate) mod rating_scales;
pub(crate) mod replicas;
pub(crate) mod ruleset_copies;
pub(crate) mod sequence_runner;
pub(crate) mod sqlite_crash;
pub(crate) mod sqlite_file;
pub(crate) mod sqlite_queue_file;
mod upgraded_file;

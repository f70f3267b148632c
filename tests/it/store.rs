//! The store: fixed and random sequences on every backend, crashes, replicas.

pub(crate) mod change_feed;
pub(crate) mod crash;
pub(crate) mod expiry_during_outage;
pub(crate) mod kill_server;
pub(crate) mod model;
pub(crate) mod newer_server;
pub(crate) mod queue_model;
pub(crate) mod queue_replicas;
pub(crate) mod queue_rows;
pub(crate) mod queue_story;
pub(crate) mod random_caller;
pub(crate) mod random_queue_sequences;
pub(crate) mod random_sequences;
pub(crate) mod replicas;
pub(crate) mod results;
pub(crate) mod rows;
pub(crate) mod sequence_runner;
pub(crate) mod sqlite_file;
pub(crate) mod sqlite_queue_file;
pub(crate) mod story;

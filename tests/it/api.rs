//! RPCs through a complete server, and their encoding on the wire.

pub(crate) mod advertise;
pub(crate) mod authorization;
pub(crate) mod batched_updates;
pub(crate) mod client_state_machine;
pub(crate) mod connect;
pub(crate) mod connect_wire;
pub(crate) mod consent;
pub(crate) mod consistency_check;
pub(crate) mod cpp_client;
pub(crate) mod entry_points;
pub(crate) mod entry_points_wire;
pub(crate) mod envelope_bytes;
pub(crate) mod field_errors;
pub(crate) mod invalid_numbers;
pub(crate) mod latency_phases;
pub(crate) mod limits_wire;
pub(crate) mod operator_wire;
pub(crate) mod reservations;
pub(crate) mod response_encoding;
pub(crate) mod ruleset_reload;
pub(crate) mod scenario_vectors;
pub(crate) mod score_vectors;
pub(crate) mod search;
pub(crate) mod search_allocations;
pub(crate) mod search_token;
pub(crate) mod session_composition;

//! Advertisements: search, update, reservations, expiry, and the single writer that commits their changes.

pub(in crate::engine) mod advert_set;
pub(in crate::engine) mod advert_set_map;
pub(in crate::engine) mod apply_commit;
pub(in crate::engine) mod apply_feed;
pub(in crate::engine) mod checked_session;
pub(in crate::engine) mod expiry;
pub(in crate::engine) mod follow_feed;
pub(in crate::engine) mod prepare_write;
pub(in crate::engine) mod publish_batch;
pub(in crate::engine) mod replicated_writer;
pub(in crate::engine) mod replication_state;
pub(in crate::engine) mod reservation_events;
pub(in crate::engine) mod reservation_view;
pub(in crate::engine) mod reserve;
pub(in crate::engine) mod search;
pub(in crate::engine) mod search_overrides;
pub(in crate::engine) mod store_outage;
pub(in crate::engine) mod update_answer;
pub(in crate::engine) mod updates;
pub(in crate::engine) mod writer;
pub(in crate::engine) mod writer_command;

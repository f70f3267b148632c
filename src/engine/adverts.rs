//! Advertisements: search, update, reservations, expiry, and the single writer that commits their changes.

pub(crate) mod advert_set;
pub(crate) mod advert_set_map;
pub(crate) mod apply_commit;
pub(crate) mod apply_feed;
pub(crate) mod expiry;
pub(crate) mod follow_feed;
pub(crate) mod prepare_write;
pub(crate) mod publish_batch;
pub(crate) mod replicated_writer;
pub(crate) mod replication_state;
pub(crate) mod reservation_events;
pub(crate) mod reservation_view;
pub(crate) mod reserve;
pub(crate) mod search;
pub(crate) mod search_overrides;
pub(crate) mod store_outage;
pub(crate) mod update_answer;
pub(crate) mod updates;
pub(crate) mod writer;
pub(crate) mod writer_command;

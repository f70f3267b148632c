//! Advertisements: search, update, reservations, expiry, and the single writer that commits their changes.

pub(crate) mod advert_engine;
pub(crate) mod advert_set;
pub(crate) mod advert_set_map;
pub(crate) mod advert_state;
pub(crate) mod adverts_for_queues;
pub(crate) mod avoided_advert_ids;
pub(crate) mod expiry;
pub(crate) mod feed_reader;
pub(crate) mod host_events;
pub(crate) mod in_flight_changes;
pub(crate) mod owner_limits;
mod probe_results;
pub(crate) mod publish_batch;
pub(crate) mod rating_refresh;
mod replicated_writer;
pub(crate) mod replication_state;
pub(crate) mod reservation_view;
pub(crate) mod reserved_user_index;
pub(crate) mod search_claim;
pub(crate) mod search_overrides;
mod seat_measures;
pub(crate) mod store_outage;
pub(crate) mod update_answer;
pub(crate) mod writer;
pub(crate) mod writer_command;

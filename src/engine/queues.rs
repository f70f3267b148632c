//! Matchmaking queues: tickets enter and leave, passes propose matches, players are notified; the store decides.

mod allocation;
mod allocator_stream;
mod allocators;
mod backfill_wakeups;
mod change_notifier;
pub mod command;
mod connected_users;
mod feed_reader;
mod leases;
mod offer_task;
pub mod operator_command;
mod outage_sync;
mod pass_reports;
mod pass_runner;
mod placement_problems;
mod plan_transition;
pub(crate) mod queue_engine;
mod queue_runner;
mod queue_wakeups;
mod result_report;
mod shared_state;
mod snapshot;
mod stored_ticket;
mod ticket_holder;
mod ticket_match_cache;
mod ticket_watch;
mod wait_estimator;
mod writer;
mod writer_command;

pub use self::allocator_stream::AllocatorStream;
pub use self::change_notifier::ChangeNotifier;
pub use self::pass_reports::rule_name;
pub use self::queue_engine::QueueEngine;
pub use self::ticket_watch::TicketWatch;

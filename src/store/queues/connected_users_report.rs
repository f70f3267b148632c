//! Report of a server about its connected users, for gates that require a share of them.

use crate::store::queues::queue_key::QueueKey;

/// Maximum users that one report adds to the list of a server, or removes from it.
pub const USER_CHANGES_PER_REPORT_MAX: usize = 5_000;

/// Connected users of a server, and what has changed since its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectedUsersReport {
    /// Number of users by queue, each queue once. Queues without users need no entry.
    pub counts: Vec<(QueueKey, u32)>,
    /// Whether the store first removes all users that the server has listed.
    pub replaces_list: bool,
    /// Users who have connected: keys that differ in each queue, and are the same on all servers.
    pub newly_connected: Vec<(QueueKey, i64)>,
    /// Users who have disconnected.
    pub newly_disconnected: Vec<(QueueKey, i64)>,
    /// Whether all users of `counts` are now listed. If not, they count beside those of other servers.
    pub is_list_complete: bool,
    /// Queues whose passes the server runs: it counts their distinct users for all servers.
    pub queues_to_total: Vec<QueueKey>,
}

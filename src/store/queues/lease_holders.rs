//! Servers that share a store and may hold queue leases.

use std::collections::BTreeSet;

/// Servers that share a store and live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveServers {
    /// Whether this server counted as alive until now. If not, others may have taken its leases.
    pub was_this_server_live: bool,
    /// Ids of the others. Servers of earlier versions are not listed.
    pub others: BTreeSet<u64>,
}

impl LiveServers {
    /// Holders of a store that serves one server.
    pub(super) fn of_single_server() -> Self {
        Self { was_this_server_live: true, others: BTreeSet::new() }
    }
}

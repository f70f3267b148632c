//! Persistence of outages: signs of life of servers, and intervals in which they could not write.

use async_trait::async_trait;

use crate::domain::available_time::Outage;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;

/// Maximum outages that one report reads; the latest ones.
pub const OUTAGES_READ_MAX: usize = 1_000;

/// Maximum servers whose sign of life one report reads; the latest ones.
pub const SERVERS_READ_MAX: usize = 1_000;

/// Report of a server about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivenessReport {
    /// Time of the report; `None` to read only.
    pub alive_at: Option<UnixMs>,
    /// Outages of this server that have ended. Writing one again changes nothing.
    pub ended_outages: Vec<Outage>,
    /// Outages that ended, and other servers' signs of life, before this time are purged.
    pub purge_before: UnixMs,
    /// Whether no other server is alive, and `ended` covers their silence: their signs of life are removed.
    pub purges_other_servers: bool,
    /// Whether this server stops now. A store that serves one server does not keep it.
    pub is_stopping: bool,
}

/// Last sign of life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSignOfLife {
    /// Whether the server is the one that reads.
    pub is_own: bool,
    /// Time of the sign of life.
    pub alive_at: UnixMs,
    /// Whether the server stopped then. One that was killed did not say so.
    pub is_stopped: bool,
}

impl ServerSignOfLife {
    /// Mark of the only server of a store.
    pub(super) fn of_only_server(alive_at: UnixMs) -> Self {
        Self { is_own: true, alive_at, is_stopped: false }
    }
}

/// Outages of all servers, and the last sign of life of each server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredOutages {
    /// Outages.
    pub outages: Vec<Outage>,
    /// Signs of life.
    pub servers: Vec<ServerSignOfLife>,
}

/// Store of outages.
#[async_trait]
pub trait OutageStore: Send + Sync + 'static {
    /// Applies a report in one transaction, and returns what the store has then.
    async fn apply_liveness_report(&self, report: &LivenessReport) -> Result<StoredOutages, StoreError>;
}

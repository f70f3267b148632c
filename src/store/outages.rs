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
pub struct OutageReport {
    /// Time of the report; `None` to read only.
    pub alive_at: Option<UnixMs>,
    /// Outages of this server that have ended. Writing one again changes nothing.
    pub ended: Vec<Outage>,
    /// Outages that ended, and other servers' signs of life, before this time are purged.
    pub purge_before: UnixMs,
    /// Whether no other server is alive, and `ended` covers their silence: their signs of life are removed.
    pub replaces_servers: bool,
}

/// Outages of all servers, and the last sign of life of each server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredOutages {
    /// Outages.
    pub outages: Vec<Outage>,
    /// Signs of life: whether the server is this one, and the time.
    pub servers: Vec<(bool, UnixMs)>,
}

/// Store of outages.
#[async_trait]
pub trait OutageStore: Send + Sync + 'static {
    /// Applies a report in one transaction, and returns what the store has then.
    async fn report_outages(&self, report: &OutageReport) -> Result<StoredOutages, StoreError>;
}

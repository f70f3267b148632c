//! Outages of the in-memory store.

use std::sync::PoisonError;

use async_trait::async_trait;

use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;
use crate::store::outages::{LivenessReport, OUTAGES_READ_MAX, OutageStore, ServerSignOfLife, StoredOutages};

#[async_trait]
impl OutageStore for MemoryStore {
    async fn apply_liveness_report(&self, report: &LivenessReport) -> Result<StoredOutages, StoreError> {
        let mut stored = self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(alive_at) = report.alive_at {
            stored.servers = vec![ServerSignOfLife::of_only_server(alive_at)];
        }
        for outage in &report.ended_outages {
            if stored.outages.iter().all(|existing| existing.from != outage.from) {
                stored.outages.push(*outage);
            }
        }
        stored.outages.retain(|outage| report.purge_before <= outage.to);
        let surplus = stored.outages.len().saturating_sub(OUTAGES_READ_MAX);
        stored.outages.drain(..surplus);
        Ok(stored.clone())
    }
}

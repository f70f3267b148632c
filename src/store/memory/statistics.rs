//! Statistics of the in-memory store.

use std::sync::PoisonError;

use async_trait::async_trait;

use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;
use crate::store::statistics::{StatisticsBatch, StatisticsQuery, StatisticsStore, StatisticsTotals};

#[async_trait]
impl StatisticsStore for MemoryStore {
    async fn add_statistics(&self, batch: &StatisticsBatch) -> Result<bool, StoreError> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).add(batch);
        Ok(false)
    }

    async fn read_statistics(&self, query: &StatisticsQuery) -> Result<StatisticsTotals, StoreError> {
        Ok(self.statistics.lock().unwrap_or_else(PoisonError::into_inner).totals(query))
    }
}

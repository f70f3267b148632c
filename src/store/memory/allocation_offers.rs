//! Offers to allocators of the in-memory store.

use std::sync::PoisonError;

use async_trait::async_trait;

use crate::domain::time::UnixMs;
use crate::store::allocation_offers::{OFFER_RETENTION_MS, OfferStore, OfferWrite, StoredOffer};
use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;

#[async_trait]
impl OfferStore for MemoryStore {
    async fn apply_offer_writes(
        &self,
        writes: &[OfferWrite],
        now: UnixMs,
    ) -> Result<Vec<Option<StoredOffer>>, StoreError> {
        let mut rows = self.allocation_offers.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|_, offer| now < offer.answer_by.plus_ms(OFFER_RETENTION_MS));
        let apply = |write: &OfferWrite| {
            let id = write.match_id();
            if let Some(changed) = write.changed_row(rows.get(&id), now) {
                rows.insert(id, changed);
            }
            rows.get(&id).copied()
        };
        Ok(writes.iter().map(apply).collect())
    }
}

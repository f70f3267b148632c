//! Connection of an allocator: receives offers until it is dropped.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::engine::queues::allocators::AllocatorConnectionId;
use crate::engine::queues::command::{AllocatorRegistration, MatchOffer};
use crate::engine::queues::shared_state::SharedState;

/// Offers to one allocator.
#[derive(Debug)]
pub struct AllocatorStream {
    shared: Arc<SharedState>,
    id: AllocatorConnectionId,
    offers: mpsc::Receiver<MatchOffer>,
}

impl AllocatorStream {
    /// Connects an allocator; `None` if too many are connected.
    pub(crate) fn connect(shared: Arc<SharedState>, registration: AllocatorRegistration) -> Option<Self> {
        let (id, offers) = shared.allocators.lock().connect(registration)?;
        shared.common.metrics.allocators.inc();
        shared.allocation_offer_wakeup.notify_one();
        Some(Self { shared, id, offers })
    }

    /// Waits for the next offer. Cancel-safe.
    pub async fn next_offer(&mut self) -> Option<MatchOffer> {
        self.offers.recv().await
    }
}

impl Drop for AllocatorStream {
    fn drop(&mut self) {
        self.shared.allocators.lock().disconnect(self.id);
        self.shared.common.metrics.allocators.dec();
    }
}

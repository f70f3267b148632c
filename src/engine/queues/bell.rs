//! Tells whoever watches tickets that some of them have changed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::domain::id::TicketId;

/// Which of the tickets that one stream watches have changed since it last looked. However slow the stream, there are no more of
/// them than it watches: what changes twice before it looks is seen once, as it then stands.
#[derive(Debug, Default)]
pub struct Bell {
    changed: Mutex<BTreeSet<TicketId>>,
    rung: Notify,
}

impl Bell {
    /// Notes a change.
    pub(super) fn ring(&self, id: TicketId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.rung.notify_one();
    }

    /// Waits until something has changed, and says what.
    pub async fn changed(&self) -> BTreeSet<TicketId> {
        loop {
            let rung = self.rung.notified();
            let changed = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
            if !changed.is_empty() {
                return changed;
            }
            rung.await;
        }
    }
}

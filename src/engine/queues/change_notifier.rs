//! Notifies ticket watchers of changes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::domain::id::TicketId;

/// Changed tickets of one watch stream. Changes coalesce: a slow stream sees only the latest state, so the set is
/// bounded.
#[derive(Debug, Default)]
pub struct TicketChangeNotifier {
    changed_tickets: Mutex<BTreeSet<TicketId>>,
    wakeup: Notify,
}

impl TicketChangeNotifier {
    /// Adds a changed ticket and wakes the stream.
    pub(crate) fn notify_changed(&self, id: TicketId) {
        self.changed_tickets.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.wakeup.notify_one();
    }

    /// Waits for changes and takes the changed tickets.
    pub async fn wait_for_changes(&self) -> BTreeSet<TicketId> {
        loop {
            let wakeup = self.wakeup.notified();
            let changed_tickets =
                std::mem::take(&mut *self.changed_tickets.lock().unwrap_or_else(PoisonError::into_inner));
            if !changed_tickets.is_empty() {
                return changed_tickets;
            }
            wakeup.await;
        }
    }
}

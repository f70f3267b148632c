//! Tells whoever watches tickets that some of them have changed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::domain::id::TicketId;

/// Which of the tickets that one stream watches have changed since it last looked. However slow the stream, there are no more of
/// them than it watches: what changes twice before it looks is seen once, as it then stands.
#[derive(Debug, Default)]
pub struct ChangeNotifier {
    changed_tickets: Mutex<BTreeSet<TicketId>>,
    wakeup: Notify,
}

impl ChangeNotifier {
    /// Notes a change.
    pub(super) fn notify_changed(&self, id: TicketId) {
        self.changed_tickets.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.wakeup.notify_one();
    }

    /// Waits until something has changed, and says what.
    pub async fn wait_for_changes(&self) -> BTreeSet<TicketId> {
        loop {
            let rung = self.wakeup.notified();
            let changed = std::mem::take(&mut *self.changed_tickets.lock().unwrap_or_else(PoisonError::into_inner));
            if !changed.is_empty() {
                return changed;
            }
            rung.await;
        }
    }
}

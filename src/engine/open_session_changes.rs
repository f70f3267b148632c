//! Silos in which a session has been published or has got a free seat: queues that fill open sessions look again.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::domain::id::{SetId, SiloId};

/// Changes since the last read. At most one entry for each set and open silo.
#[derive(Debug, Default)]
pub(crate) struct OpenSessionChanges {
    changed_queues: Mutex<BTreeSet<(SetId, SiloId)>>,
    wakeup: Notify,
}

impl OpenSessionChanges {
    /// Records that a session of a set and silo has open seats.
    pub(crate) fn record(&self, set_id: SetId, silo: SiloId) {
        if self.changed_queues.lock().insert((set_id, silo)) {
            self.wakeup.notify_one();
        }
    }

    /// Waits for changes and takes them. Cancel-safe.
    pub(crate) async fn wait_and_take_all(&self) -> BTreeSet<(SetId, SiloId)> {
        loop {
            let changed = std::mem::take(&mut *self.changed_queues.lock());
            if !changed.is_empty() {
                return changed;
            }
            self.wakeup.notified().await;
        }
    }
}

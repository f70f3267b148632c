//! Changes in flight: counts the uncommitted changes of each advertisement, so that a heartbeat does not overtake one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::engine::error::EngineError;
use crate::engine::writer_inbox::ReplySender;

/// Number of uncommitted changes per advertisement. A heartbeat must not overtake an earlier change.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlightChanges(Arc<Mutex<HashMap<AdvertisementId, u32, BuildIdHasher>>>);

/// One uncommitted change; it ends when dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    changes: InFlightChanges,
    advertisement_id: AdvertisementId,
}

impl InFlightChanges {
    /// Counts a change of `id` until the guard is dropped.
    pub(crate) fn begin_change(&self, id: AdvertisementId) -> InFlightGuard {
        *self.lock().entry(id).or_insert(0) += 1;
        InFlightGuard { changes: self.clone(), advertisement_id: id }
    }

    /// Whether `id` has an uncommitted change.
    pub(crate) fn has_change(&self, id: AdvertisementId) -> bool {
        self.lock().contains_key(&id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AdvertisementId, u32, BuildIdHasher>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut counts = self.changes.lock();
        if let Some(count) = counts.get_mut(&self.advertisement_id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.advertisement_id);
            }
        }
    }
}

/// Answers a command. Ends the in-flight change first, so that a heartbeat after the answer finds memory up to date.
pub(crate) fn end_change_and_answer<T>(
    reply: ReplySender<T>,
    in_flight: InFlightGuard,
    answer: Result<T, EngineError>,
) {
    drop(in_flight);
    let _ = reply.send(answer);
}

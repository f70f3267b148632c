//! Sessions that a search leaves out for a while, because they have just refused the party.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::matching::monotonic_time::MonotonicTime;

/// Time for which a session is left out.
const EXCLUDED_FOR: Duration = Duration::from_secs(10);
/// Most sessions in one search request.
const EXCLUDED_MAX: usize = 256;

/// Sessions that are left out, each until its time is over.
#[derive(Debug, Default)]
pub(super) struct TimedExclusions {
    until: BTreeMap<String, MonotonicTime>,
}

impl TimedExclusions {
    /// Leaves a session out from now on.
    pub(super) fn add(&mut self, advertisement_id: &str, now: MonotonicTime) {
        self.until.retain(|_, until| now < *until);
        if EXCLUDED_MAX <= self.until.len() {
            let oldest = self.until.iter().min_by_key(|(_, until)| **until).map(|(id, _)| id.clone());
            oldest.and_then(|id| self.until.remove(&id));
        }
        self.until.insert(advertisement_id.to_owned(), now + EXCLUDED_FOR);
    }

    /// Whether a session is left out now.
    pub(super) fn contains(&self, advertisement_id: &str, now: MonotonicTime) -> bool {
        self.until.get(advertisement_id).is_some_and(|until| now < *until)
    }

    /// All that are left out now.
    pub(super) fn ids(&self, now: MonotonicTime) -> Vec<String> {
        self.until.iter().filter(|(_, until)| now < **until).map(|(id, _)| id.clone()).collect()
    }
}

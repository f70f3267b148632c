//! Health of writes to the store: whether commits fail, for example because the disk is full.
//!
//! A conflict is an outcome of a commit, not an error. A row that is corrupt or of a newer server concerns only batches
//! that touch it, so it does not count either.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::StoreError;

/// Time for which commits to a shared store may fail while reads succeed. A database that cannot be reached also fails
/// some commits before reads have failed; then the limit on stale data applies, because searches continue from memory.
const SHARED_STORE_GRACE: Duration = Duration::from_secs(2);

/// Result of the last commits. Both writers and the probe record it.
#[derive(Debug)]
pub(crate) struct WriteHealth {
    failing_since: watch::Sender<Option<Instant>>,
}

impl Default for WriteHealth {
    fn default() -> Self {
        Self { failing_since: watch::Sender::new(None) }
    }
}

impl WriteHealth {
    /// Records the result of a commit.
    pub(crate) fn record<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => {
                if self.failing_since.send_replace(None).is_some() {
                    tracing::info!("commits succeed again");
                }
            }
            Err(error) if error.is_of_one_row() => {}
            Err(_) => {
                self.failing_since.send_if_modified(|since| {
                    let is_first = since.is_none();
                    since.get_or_insert_with(Instant::now);
                    is_first
                });
            }
        }
    }

    /// Whether commits fail although the store can be read. `is_stale`: a shared store cannot be read at the moment;
    /// `None` if the store is not shared.
    pub(crate) fn is_failing(&self, is_stale: Option<bool>) -> bool {
        match is_stale {
            None => self.has_failed_for(Duration::ZERO),
            Some(is_stale) => !is_stale && self.has_failed_for(SHARED_STORE_GRACE),
        }
    }

    /// Whether commits have failed for at least `grace`, and none has succeeded since.
    fn has_failed_for(&self, grace: Duration) -> bool {
        self.failing_since.borrow().is_some_and(|since| grace <= since.elapsed())
    }

    /// Counts the time of failures from now, if commits fail.
    pub(crate) fn restart_failure_period(&self) {
        self.failing_since.send_if_modified(|since| {
            *since = since.map(|_| Instant::now());
            false
        });
    }

    /// Waits until commits fail.
    pub(crate) async fn wait_until_failing(&self) {
        let _ = self.failing_since.subscribe().wait_for(Option::is_some).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: StoreError) -> Result<(), StoreError> {
        Err(error)
    }

    #[tokio::test]
    async fn commits_fail_until_the_first_success() {
        let health = WriteHealth::default();
        assert!(!health.has_failed_for(Duration::ZERO));
        health.record(&failed(StoreError::Unavailable("the disk is full".into())));
        health.wait_until_failing().await;
        assert!(health.is_failing(None), "the only server of its store");
        assert!(!health.is_failing(Some(false)), "the time of grace of a shared store has not passed");
        health.record(&Ok(()));
        assert!(!health.is_failing(None));
    }

    /// While a shared store cannot be read, searches continue from memory, and the limit on stale data decides.
    #[test]
    fn commits_that_fail_during_an_outage_do_not_count() {
        let health = WriteHealth::default();
        let long_ago = Instant::now().checked_sub(2 * SHARED_STORE_GRACE);
        health.failing_since.send_replace(long_ago);
        assert!(health.is_failing(Some(false)));
        assert!(!health.is_failing(Some(true)));
        health.restart_failure_period();
        assert!(!health.is_failing(Some(false)), "the time of grace starts with the end of the outage");
    }

    /// A client that touches a corrupt row again and again must not take the server out of rotation.
    #[test]
    fn error_of_one_row_does_not_count_as_failing() {
        let health = WriteHealth::default();
        health.record(&failed(StoreError::CorruptRow { table: "t", column: "c", reason: "r".into() }));
        health.record(&failed(StoreError::UnknownRow { table: "t", column: "c", reason: "r".into() }));
        assert!(!health.has_failed_for(Duration::ZERO));
    }
}

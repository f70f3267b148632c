//! Repetition of store calls at startup, while other servers hold locks or many servers start at once.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::StoreError;

/// Longest time for which a call is repeated. Longer than a database lets a server that hangs in a transaction keep its
/// locks, see `idle_in_transaction_session_timeout` of the Postgres store.
const RETRY_TIME_MAX: Duration = Duration::from_secs(10);

/// Pause between attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Calls until the store is available, for at most 10 seconds. Returns the last error.
pub(crate) async fn retry_at_startup<T>(
    action: &'static str,
    mut call: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let started_at = Instant::now();
    let mut is_first = true;
    loop {
        match call().await {
            Err(StoreError::Unavailable(reason)) if started_at.elapsed() < RETRY_TIME_MAX => {
                if std::mem::take(&mut is_first) {
                    tracing::warn!(action, reason, "store is unavailable at startup, retrying");
                }
            }
            result => return result,
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

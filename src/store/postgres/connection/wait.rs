//! Wait at startup for a database that does not accept connections yet: it starts, or its host has no name or no route yet.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::Instant;

use crate::store::error::StoreError;
use crate::store::postgres::connection::open::add_address_to_error;
use crate::store::postgres::connection::slot::{timeout_error, to_store_error};

/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Time limit of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Error codes after which a later attempt may succeed: the database starts, stops or recovers, or has no free connection.
const TRANSIENT_CODES: [&str; 4] = ["57P01", "57P02", "57P03", "53300"];

/// Connects until the database accepts a connection, for at most `max`. Each failed attempt is a line of the log.
///
/// Returns at once, also with success, if waiting cannot help: what is wrong is then the error of the caller's own connection.
/// Fails with host and cause when the time is over.
pub(in crate::store::postgres) async fn wait_for_database(
    options: &PgConnectOptions,
    max: Duration,
) -> Result<(), StoreError> {
    let started_at = Instant::now();
    for attempt in 1_u64.. {
        let error = match tokio::time::timeout(ATTEMPT_TIMEOUT, options.connect()).await {
            Ok(Ok(connection)) => {
                let _ = connection.close().await;
                return Ok(());
            }
            Ok(Err(error)) if !is_transient(&error) => return Ok(()),
            Ok(Err(error)) => to_store_error(error),
            Err(_) => timeout_error("connecting", ATTEMPT_TIMEOUT),
        };
        let waited = started_at.elapsed();
        let StoreError::Unavailable(reason) = add_address_to_error(options, error) else { return Ok(()) };
        if waited + RETRY_PAUSE > max {
            return Err(StoreError::Unavailable(format!(
                "{reason}; waited {} s, start the database or raise --store-wait-s",
                waited.as_secs()
            )));
        }
        tracing::warn!(
            reason,
            attempt,
            waited_s = waited.as_secs(),
            max_s = max.as_secs(),
            "database unreachable, retried"
        );
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    Ok(())
}

/// Whether a later attempt may succeed.
fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| TRANSIENT_CODES.contains(&&*code)),
        _ => false,
    }
}

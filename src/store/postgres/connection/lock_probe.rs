//! Check at startup that two sessions cannot hold one advisory lock. Behind a pooler that shares sessions they can, and
//! parties with a common player could enter two queues.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};

use crate::store::error::StoreError;
use crate::store::postgres::connection::slot::to_store_error;

/// First number of the advisory locks of this check: `ftpr` in ASCII. The second is the process id of the first session,
/// so that servers that start together do not disturb each other.
const PROBE_LOCK_CLASS: i32 = 0x6674_7072;

/// Results of two sessions that try to take the same advisory locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockProbeResult {
    /// Process ids of the sessions in the database.
    process_ids: (i32, i32),
    /// The first session took a lock until its end.
    first_took_session_lock: bool,
    /// The second session took the same lock meanwhile.
    second_took_session_lock: bool,
    /// The first session still had the lock at the end.
    first_kept_session_lock: bool,
    /// The second session took a lock that the first held until the end of its transaction.
    second_took_transaction_lock: bool,
}

/// Checks that advisory locks exclude other sessions. Returns `Incompatible` if they do not.
pub(in crate::store::postgres) async fn check_advisory_locks(options: &PgConnectOptions) -> Result<(), StoreError> {
    let options = options.clone().application_name("fireteam startup");
    let probe = async {
        let (mut first, mut second) = (options.connect().await?, options.connect().await?);
        let probe = probe_lock_exclusion(&mut first, &mut second).await?;
        first.close().await?;
        second.close().await?;
        Ok(probe)
    };
    check_probe(probe.await.map_err(to_store_error)?)
}

/// The session lock is taken outside a transaction: there a pooler in transaction mode may give both clients one session.
async fn probe_lock_exclusion(
    first: &mut PgConnection,
    second: &mut PgConnection,
) -> Result<LockProbeResult, sqlx::Error> {
    let (first_id, first_took_session_lock): (i32, bool) =
        sqlx::query_as("select pg_backend_pid(), pg_try_advisory_lock($1, pg_backend_pid())")
            .bind(PROBE_LOCK_CLASS)
            .fetch_one(&mut *first)
            .await?;
    let (second_id, second_took_session_lock): (i32, bool) =
        sqlx::query_as("select pg_backend_pid(), pg_try_advisory_lock($1, $2)")
            .bind(PROBE_LOCK_CLASS)
            .bind(first_id)
            .fetch_one(&mut *second)
            .await?;
    if second_took_session_lock {
        // The session may belong to a pooler and live on.
        unlock(second, first_id).await?;
    }
    let first_kept_session_lock = unlock(first, first_id).await?;
    let mut transaction = first.begin().await?;
    sqlx::query("select pg_advisory_xact_lock($1, $2)::text")
        .bind(PROBE_LOCK_CLASS)
        .bind(first_id)
        .execute(&mut *transaction)
        .await?;
    let second_took_transaction_lock = sqlx::query_scalar("select pg_try_advisory_xact_lock($1, $2)")
        .bind(PROBE_LOCK_CLASS)
        .bind(first_id)
        .fetch_one(second)
        .await?;
    transaction.rollback().await?;
    Ok(LockProbeResult {
        process_ids: (first_id, second_id),
        first_took_session_lock,
        second_took_session_lock,
        first_kept_session_lock,
        second_took_transaction_lock,
    })
}

/// Returns whether the session had the lock.
async fn unlock(connection: &mut PgConnection, number: i32) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select pg_advisory_unlock($1, $2)")
        .bind(PROBE_LOCK_CLASS)
        .bind(number)
        .fetch_one(connection)
        .await
}

fn check_probe(probe: LockProbeResult) -> Result<(), StoreError> {
    let problem = if probe.process_ids.0 == probe.process_ids.1 {
        "two connections share one session"
    } else if probe.second_took_session_lock || probe.second_took_transaction_lock {
        "two sessions took one advisory lock at the same time"
    } else if !probe.first_took_session_lock {
        "a free advisory lock was refused"
    } else if !probe.first_kept_session_lock {
        "a session lost its advisory lock"
    } else {
        return Ok(());
    };
    Err(StoreError::Incompatible(format!(
        "postgres does not keep sessions apart ({problem}); connect directly to the database, or set the pooler to \
         session mode (PgBouncer: pool_mode = session)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSIVE: LockProbeResult = LockProbeResult {
        process_ids: (11, 12),
        first_took_session_lock: true,
        second_took_session_lock: false,
        first_kept_session_lock: true,
        second_took_transaction_lock: false,
    };

    #[test]
    fn lock_probe_refuses_sessions_that_are_not_kept_apart() {
        assert!(check_probe(EXCLUSIVE).is_ok());
        for (probe, expected) in [
            (LockProbeResult { process_ids: (11, 11), ..EXCLUSIVE }, "share one session"),
            (LockProbeResult { second_took_session_lock: true, ..EXCLUSIVE }, "took one advisory lock"),
            (LockProbeResult { second_took_transaction_lock: true, ..EXCLUSIVE }, "took one advisory lock"),
            (LockProbeResult { first_took_session_lock: false, ..EXCLUSIVE }, "was refused"),
            (LockProbeResult { first_kept_session_lock: false, ..EXCLUSIVE }, "lost its advisory lock"),
        ] {
            let error = check_probe(probe).unwrap_err();
            assert!(matches!(error, StoreError::Incompatible(_)));
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains("pool_mode = session"), "{text}");
        }
    }
}

//! Purging of rows that are due, in small steps.

use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::postgres::connection::slot::{ConnectionSlot, OPERATION_TIMEOUT, query_within};
use crate::store::rows::to_ms;

/// Maximum number of purge statements per table in one call; each removes at most 1,000 rows.
const PURGE_RUNS_PER_STATEMENT_MAX: usize = 20;

/// Runs each statement until it removes no more rows. Statements in `due` take `now`; those in `by_database_clock` take
/// the time from the database.
pub(in crate::store::postgres) async fn purge_rows(
    slot: &mut ConnectionSlot,
    due: &[&'static str],
    by_database_clock: &[&'static str],
    now: UnixMs,
) -> Result<(), StoreError> {
    for &statement in due {
        for _ in 0..PURGE_RUNS_PER_STATEMENT_MAX {
            let result = query_within!(slot, OPERATION_TIMEOUT, "purging", |connection| {
                sqlx::query(statement).bind(to_ms(now)).execute(&mut *connection)
            })?;
            if result.rows_affected() == 0 {
                break;
            }
        }
    }
    for &statement in by_database_clock {
        for _ in 0..PURGE_RUNS_PER_STATEMENT_MAX {
            let result = query_within!(slot, OPERATION_TIMEOUT, "purging", |connection| {
                sqlx::query(statement).execute(&mut *connection)
            })?;
            if result.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}

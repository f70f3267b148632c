//! Purging of rows that are due, in small steps.

use sqlx::sqlite::SqliteConnection;

use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::rows::to_ms;
use crate::store::sqlite::connection::error::to_store_error;

/// Maximum number of purge statements per table in one call; each removes at most 1,000 rows.
const PURGE_RUNS_PER_STATEMENT_MAX: usize = 100;

/// Runs each of `statements` until it removes no more rows.
pub(in crate::store::sqlite) async fn purge_rows(
    connection: &mut SqliteConnection,
    statements: &[&'static str],
    now: UnixMs,
) -> Result<(), StoreError> {
    for &statement in statements {
        for _ in 0..PURGE_RUNS_PER_STATEMENT_MAX {
            let query = sqlx::query(statement).bind(to_ms(now));
            if query.execute(&mut *connection).await.map_err(to_store_error)?.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}

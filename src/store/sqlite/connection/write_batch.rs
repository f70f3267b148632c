//! Batches of writes, each committed in one transaction on the writer's connection.

use std::future::Future;

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::store::error::StoreError;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::wal::WalLength;
use crate::store::unknown_rows::UnknownRows;

/// Write of which [`SqliteStore`](crate::store::sqlite::SqliteStore) commits batches.
pub(in crate::store::sqlite) trait BatchableWrite: Send + Sync + Sized + 'static {
    /// Result of one write.
    type Output: Send + 'static;

    /// Applies a batch and returns its outcomes and the new length of the write-ahead log. On an error nothing was
    /// committed. The connection may be inside a transaction, so the caller must close it.
    fn commit_batch(
        connection: &mut SqliteConnection,
        batch: &[Self],
        unknown_rows: &UnknownRows,
    ) -> impl Future<Output = Result<(Vec<Self::Output>, WalLength), StoreError>> + Send;
}

/// Reads the length of the log from the row that a committed script returns.
pub(in crate::store::sqlite) fn decode_wal_length(row: &SqliteRow) -> Result<WalLength, StoreError> {
    let number = |index| row.try_get::<i64, _>(index).map_err(to_store_error);
    Ok(WalLength { pages: number(1)?, checkpointed_pages: number(2)? })
}

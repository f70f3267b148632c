//! Finds out what became of a commit that was sent and not answered.

use std::time::Duration;

use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::store::StoreError;
use crate::store::postgres::line::{ask, late};
use crate::store::postgres::{Desk, statements as sql};

/// How long to ask. Clients are waiting.
const WITHIN: Duration = Duration::from_millis(500);

/// Whether batch `batch_id` has been committed. If not, it never will be: its name in `change` is taken, and whatever is
/// left of its transaction fails by it. The insert waits for a transaction that is still on its way.
pub(super) async fn settle(desk: &mut Desk, batch_id: Uuid) -> Result<bool, StoreError> {
    let end = Instant::now() + WITHIN;
    let replica = desk.replica;
    loop {
        let answer = ask!(desk.writes, WITHIN, "settling a commit", |connection| sqlx::query(sql::GIVE_UP)
            .bind(batch_id)
            .bind(replica)
            .execute(&mut *connection));
        match answer {
            Ok(done) => return Ok(done.rows_affected() == 0),
            Err(error) if end <= Instant::now() => {
                tracing::error!(%error, transaction = "settle", "nobody knows what became of a commit");
                return Err(late("settling a commit", WITHIN));
            }
            // Most likely it waited for that very transaction, longer than any statement may.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

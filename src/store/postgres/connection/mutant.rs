//! Deliberate faults of the store that need more than one line.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::PgConnection;

/// Connections whose user was cancelled, as in a pool that does not check them.
static POOL: Mutex<Vec<PgConnection>> = Mutex::new(Vec::new());

/// Connection that returns to the pool even if its user was cancelled.
pub(in crate::store::postgres) struct Pooled(pub(in crate::store::postgres) Option<PgConnection>);

impl Pooled {
    /// Takes the connection after a complete use.
    pub(in crate::store::postgres) fn whole(mut self) -> PgConnection {
        match self.0.take() {
            Some(connection) => connection,
            None => unreachable!("it is taken once"),
        }
    }
}

impl Deref for Pooled {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.0 {
            Some(connection) => connection,
            None => unreachable!("it is taken last"),
        }
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.0 {
            Some(connection) => connection,
            None => unreachable!("it is taken last"),
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        POOL.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.take());
    }
}

/// A connection whose user was cancelled, if there is one.
pub(in crate::store::postgres) fn pooled() -> Option<PgConnection> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// Commits some time after the acknowledgement.
pub(in crate::store::postgres) fn commit_later(mut connection: PgConnection) {
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let _ = connection.execute("commit").await;
    });
}

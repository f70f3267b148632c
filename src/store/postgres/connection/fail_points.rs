//! Fail points of the store that need more than one line: a commit that the client can cancel, and a commit after the
//! acknowledgement.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::PgConnection;

/// Connections whose user was cancelled, as in a pool that does not check them.
static UNCHECKED_POOL: Mutex<Vec<PgConnection>> = Mutex::new(Vec::new());

/// Whether the fail point is on that runs commits in the task of the client.
pub(in crate::store::postgres) fn cancels_commit_with_client() -> bool {
    fail::fail_point!("cancel_commit_with_client", |_| true);
    false
}

/// Connection that returns to the pool even if its user was cancelled.
pub(in crate::store::postgres) struct UncheckedPooledConnection(pub(super) Option<PgConnection>);

impl UncheckedPooledConnection {
    /// Takes the connection after a complete use.
    pub(in crate::store::postgres) fn into_inner(mut self) -> PgConnection {
        match self.0.take() {
            Some(connection) => connection,
            None => unreachable!("it is taken once"),
        }
    }
}

impl Deref for UncheckedPooledConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.0 {
            Some(connection) => connection,
            None => unreachable!("it is taken last"),
        }
    }
}

impl DerefMut for UncheckedPooledConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.0 {
            Some(connection) => connection,
            None => unreachable!("it is taken last"),
        }
    }
}

impl Drop for UncheckedPooledConnection {
    fn drop(&mut self) {
        UNCHECKED_POOL.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.take());
    }
}

/// Takes a connection whose user was cancelled, if there is one.
pub(in crate::store::postgres) fn take_cancelled_connection() -> Option<PgConnection> {
    UNCHECKED_POOL.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// Commits some time after the acknowledgement.
pub(in crate::store::postgres) fn commit_later(mut connection: PgConnection) {
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let _ = connection.execute("commit").await;
    });
}

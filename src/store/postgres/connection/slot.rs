//! Connection for one purpose: opened on demand, dropped after any error.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};

use crate::store::error::StoreError;

/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Time limit of an operation other than a commit.
pub(in crate::store::postgres) const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Slot for a connection. It is empty while an operation uses the connection. So an interrupted operation cannot leave
/// a connection with an open transaction behind.
#[derive(Debug)]
pub(in crate::store::postgres) struct ConnectionSlot {
    purpose: &'static str,
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

impl ConnectionSlot {
    /// Creates an empty slot. The database lists the connection under the name `fireteam` and the purpose.
    pub(in crate::store::postgres) fn new(purpose: &'static str, options: PgConnectOptions) -> Self {
        let options = options.application_name(&format!("fireteam {purpose}"));
        Self { purpose, options, connection: None }
    }

    /// Takes the connection, or opens one.
    pub(in crate::store::postgres) async fn take_connection(&mut self) -> Result<PgConnection, StoreError> {
        #[cfg(feature = "failpoints")]
        if let Some(connection) = crate::store::postgres::connection::fail_points::take_cancelled_connection() {
            return Ok(connection);
        }
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        match tokio::time::timeout(CONNECT_TIMEOUT, self.options.connect()).await {
            Ok(Ok(connection)) => {
                tracing::debug!(purpose = self.purpose, "connected to postgres");
                Ok(connection)
            }
            Ok(Err(error)) => Err(to_store_error(error)),
            Err(_) => Err(timeout_error("connecting", CONNECT_TIMEOUT)),
        }
    }

    /// Returns a connection after success. A connection that is not returned is closed, and the database rolls back its
    /// open transaction.
    pub(in crate::store::postgres) fn return_connection_if_ok(&mut self, connection: PgConnection) {
        self.connection = Some(connection);
    }

    /// Closes the connection, if any.
    pub(in crate::store::postgres) async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = tokio::time::timeout(CONNECT_TIMEOUT, connection.close()).await;
        }
    }
}

/// Runs a query on the slot's connection with a time limit; drops the connection on an error or timeout.
macro_rules! query_within {
    ($slot:expr, $timeout:expr, $operation:literal, |$connection:ident| $query:expr) => {{
        let mut taken = $slot.take_connection().await?;
        let $connection = &mut taken;
        match tokio::time::timeout($timeout, $query).await {
            Ok(Ok(result)) => {
                $slot.return_connection_if_ok(taken);
                Ok(result)
            }
            Ok(Err(error)) => Err($crate::store::postgres::connection::slot::to_store_error(error)),
            Err(_) => Err($crate::store::postgres::connection::slot::timeout_error($operation, $timeout)),
        }
    }};
}
pub(in crate::store::postgres) use query_within;

/// Maps the database's error to a store error. The text contains no row values.
pub(in crate::store::postgres) fn to_store_error(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|error| error.code().map(|code| code.into_owned()));
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    StoreError::Unavailable(match code {
        Some(code) => format!("postgres: {text} ({code})"),
        None => format!("postgres: {text}"),
    })
}

/// Error for an operation that exceeded its time limit.
pub(in crate::store::postgres) fn timeout_error(operation: &str, timeout: Duration) -> StoreError {
    StoreError::Unavailable(format!("postgres: {operation} timed out after {} ms", timeout.as_millis()))
}

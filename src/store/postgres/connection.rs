//! A connection for one purpose: opened when it is needed, thrown away the moment anything goes wrong with it.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};

use crate::store::StoreError;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// A place for a connection. While somebody works with it, it is empty: whatever becomes of them, nobody gets a connection
/// that was left in the middle of something.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    purpose: &'static str,
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

impl ConnectionSlot {
    /// A line without a connection; the database shows it to its operators as `fireteam` and what it is for.
    pub(super) fn new(purpose: &'static str, options: PgConnectOptions) -> Self {
        let options = options.application_name(&format!("fireteam {purpose}"));
        Self { purpose, options, connection: None }
    }

    /// The connection, or a new one.
    pub(super) async fn take_connection(&mut self) -> Result<PgConnection, StoreError> {
        #[cfg(feature = "mutants")]
        if let Some(connection) = super::mutant::pooled() {
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
            Err(_) => Err(timeout_error("a connection", CONNECT_TIMEOUT)),
        }
    }

    /// Keeps a connection that nothing went wrong with. One that is not given back is closed, and what was open on it
    /// undone by the database.
    pub(super) fn return_connection(&mut self, connection: PgConnection) {
        self.connection = Some(connection);
    }

    /// Takes leave.
    pub(super) async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = tokio::time::timeout(CONNECT_TIMEOUT, connection.close()).await;
        }
    }
}

/// Waits for one answer on a line, and throws the connection away when it fails or is late.
macro_rules! ask {
    ($line:expr, $within:expr, $what:literal, |$connection:ident| $work:expr) => {{
        let mut taken = $line.take_connection().await?;
        let $connection = &mut taken;
        let answer = tokio::time::timeout($within, $work).await;
        match answer {
            Ok(Ok(answer)) => {
                $line.return_connection(taken);
                Ok(answer)
            }
            Ok(Err(error)) => Err($crate::store::postgres::connection::to_store_error(error)),
            Err(_) => Err($crate::store::postgres::connection::timeout_error($what, $within)),
        }
    }};
}
pub(super) use ask;

/// What the database's error means to the caller. The text names no value of any row.
pub(super) fn to_store_error(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|it| it.code().map(|code| code.into_owned()));
    let what = error.to_string();
    let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
    StoreError::Unavailable(match code {
        Some(code) => format!("postgres: {line} ({code})"),
        None => format!("postgres: {line}"),
    })
}

/// What was waited for did not come.
pub(super) fn timeout_error(what: &str, within: Duration) -> StoreError {
    StoreError::Unavailable(format!("postgres: {what} took longer than {} ms", within.as_millis()))
}

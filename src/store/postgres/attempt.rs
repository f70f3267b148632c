//! Commits a batch of whatever kind: tries, tries again where another server was quicker, and finds out what became of a
//! commit that was not answered.

use std::future::Future;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnection, PgDatabaseError, PgSeverity};
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::store::StoreError;
#[cfg(feature = "mutants")]
use crate::store::mutant;
use crate::store::postgres::line::{late, unavailable};
use crate::store::postgres::{Desk, settle, statements as sql};

/// What a batch may take, all attempts together; clients are told within half a second more, and so within the 2.5 seconds
/// of R6.
const WITHIN: Duration = Duration::from_millis(1_900);

/// How often a batch begins again because another server was quicker.
const ATTEMPTS_MAX: u32 = 8;

/// Other servers are told of a change at once, but not more often than this; the rest they find when they next look.
const RINGS_APART: Duration = Duration::from_millis(100);

/// When the others were last told that there is something new. Telling takes a lock that all commits of the database
/// share, so it is not done for each.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Option<Instant>,
}

impl Bell {
    fn may_ring(&mut self) -> bool {
        let now = Instant::now();
        let may = self.rung.is_none_or(|rung| RINGS_APART <= now.duration_since(rung));
        if may {
            self.rung = Some(now);
        }
        may
    }
}

/// Why an attempt came to nothing.
pub(super) enum Trouble {
    /// Another server was quicker. Nothing has happened.
    Overtaken,
    /// It has to be decided in code.
    NotPlain,
    /// It failed. Nothing has happened.
    Failed(StoreError),
    /// It may be committed, and nobody has said so.
    Unanswered(String),
}

impl Trouble {
    /// What the failure of a statement means that was a transaction by itself. Once the database has called it an error,
    /// and not the end of the connection, it has been taken back.
    pub(super) fn of_a_whole_transaction(error: sqlx::Error) -> Self {
        let said = error.as_database_error().and_then(|it| it.try_downcast_ref::<PgDatabaseError>());
        match said {
            Some(said) if said.code() == sql::WAS_DELETED => Self::NotPlain,
            Some(said) if said.severity() == PgSeverity::Error => error.into(),
            _ => Self::Unanswered(error.to_string()),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        const LOCK_NOT_AVAILABLE: &str = "55P03";
        const DEADLOCK: &str = "40P01";
        const SERIALIZATION: &str = "40001";
        let code = error.as_database_error().and_then(|it| it.code());
        match code.as_deref() {
            Some(LOCK_NOT_AVAILABLE | DEADLOCK | SERIALIZATION) => Self::Overtaken,
            _ => Self::Failed(unavailable(error)),
        }
    }
}

/// Fewer rows made than wanted: another server made the others a moment ago.
pub(super) fn all(made: u64, wanted: usize) -> Result<(), Trouble> {
    if made == wanted as u64 { Ok(()) } else { Err(Trouble::Overtaken) }
}

/// One try at a batch.
pub(super) struct Attempt {
    /// Its name, by which it can be looked for, and given up.
    pub(super) batch_id: Uuid,
    pub(super) replica: i64,
    /// The others are told.
    pub(super) ring: bool,
}

/// A batch of changes.
pub(super) trait Work: Send {
    /// What it answers.
    type Done: Send;

    /// What operators know it by.
    fn name(&self) -> &'static str;

    /// How many changes it is.
    fn changes(&self) -> usize;

    /// Whether a try is a transaction by itself, with nothing to commit after it.
    fn is_whole(&self) -> bool {
        false
    }

    /// Makes it one that is decided in code, from the next try on.
    fn decide_in_code(&mut self) {}

    /// Everything but `commit`.
    fn make(
        &self,
        connection: &mut PgConnection,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Self::Done, Trouble>> + Send;

    /// What a batch has answered that was a transaction by itself, is committed, and was not heard.
    fn what_became(
        &self,
        desk: &mut Desk,
        batch_id: Uuid,
    ) -> impl Future<Output = Result<Self::Done, StoreError>> + Send;
}

/// Makes all changes and answers each. On an error none has happened, or nobody knows.
pub(super) async fn commit<W: Work>(desk: &mut Desk, mut work: W) -> Result<W::Done, StoreError> {
    let end = Instant::now() + WITHIN;
    for _ in 0..ATTEMPTS_MAX {
        desk.batches += 1;
        let batch_id = Uuid::from_u64_pair(desk.replica.cast_unsigned(), desk.batches);
        let attempt = Attempt { batch_id, replica: desk.replica, ring: desk.bell.may_ring() };
        #[cfg_attr(feature = "mutants", expect(unused_mut, reason = "it is wrapped"))]
        let mut connection = desk.writes.take().await?;
        #[cfg(feature = "mutants")]
        let mut connection = super::mutant::Pooled(Some(connection));
        let whole = work.is_whole();
        let made = tokio::time::timeout_at(end, work.make(&mut connection, &attempt)).await;
        let made = made.unwrap_or_else(|_| match whole {
            true => Err(Trouble::Unanswered("it took too long".into())),
            false => Err(late("a commit", WITHIN).into()),
        });
        #[cfg(feature = "mutants")]
        let mut connection = connection.whole();
        let (known, heard) = match made {
            #[cfg(feature = "mutants")]
            Ok(done) if mutant::is("acknowledge_before_commit") => {
                super::mutant::commit_later(connection);
                return Ok(done);
            }
            Ok(done) => {
                let sent = if whole { Ok(()) } else { send_commit(&mut connection, end).await };
                match sent {
                    Ok(()) => {
                        desk.writes.give_back(connection);
                        return Ok(done);
                    }
                    Err(heard) => (Some(done), heard),
                }
            }
            Err(Trouble::Unanswered(heard)) => (None, heard),
            Err(trouble @ (Trouble::Overtaken | Trouble::NotPlain)) => {
                if !whole {
                    // A connection that does not answer this either is thrown away, and nobody waits for it.
                    let undone = tokio::time::timeout_at(end, connection.execute("rollback")).await;
                    undone.map_err(|_| late("a rollback", WITHIN))?.map_err(unavailable)?;
                }
                if matches!(trouble, Trouble::NotPlain) {
                    work.decide_in_code();
                }
                desk.writes.give_back(connection);
                continue;
            }
            Err(Trouble::Failed(error)) => {
                tracing::warn!(%error, transaction = work.name(), changes = work.changes(), "a transaction failed");
                return Err(error);
            }
        };
        drop(connection);
        tracing::warn!(heard, transaction = work.name(), changes = work.changes(), "a commit was not answered");
        return match (settle::settle(desk, batch_id).await?, known) {
            (false, _) => Err(StoreError::Unavailable("postgres: a commit was lost; nothing of it happened".into())),
            (true, Some(done)) => Ok(done),
            (true, None) => work.what_became(desk, batch_id).await,
        };
    }
    Err(StoreError::Unavailable(format!("postgres: other servers were quicker {ATTEMPTS_MAX} times")))
}

/// Commits what is open; says what came instead of an answer.
async fn send_commit(connection: &mut PgConnection, end: Instant) -> Result<(), String> {
    match tokio::time::timeout_at(end, connection.execute("commit")).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long".into()),
    }
}

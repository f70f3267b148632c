//! One batch of changes, in one transaction: lock what it touches, decide in plain code, write the difference. Most are
//! plainer than that, and one statement (`plain.rs`).
//!
//! Where another server was quicker with a name that nobody had, the batch begins again and finds the name there. When the
//! connection dies before a commit is answered, `settle.rs` finds out what happened.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnection, PgDatabaseError, PgSeverity};
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::domain::id::{AdvertisementId, IdState, ReservationId};
use crate::store::decide::Picture;
use crate::store::mutant;
use crate::store::postgres::line::{late, unavailable};
use crate::store::postgres::plain::{self, Plain};
use crate::store::postgres::read::{self, Found};
use crate::store::postgres::write::Difference;
use crate::store::postgres::{Desk, settle, statements as sql};
use crate::store::touched::Touched;
use crate::store::{Committed, Outcome, Reservation, Step, StoreError, Version, Write, transaction};

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

/// Makes all changes and answers each. On an error none has happened, or nobody knows.
pub(super) async fn commit(desk: &mut Desk, batch: &[Write]) -> Result<Committed, StoreError> {
    let mut plain = Plain::of(batch).filter(|_| !mutant::is("acknowledge_before_commit"));
    let end = Instant::now() + WITHIN;
    for _ in 0..ATTEMPTS_MAX {
        desk.batches += 1;
        let batch_id = Uuid::from_u64_pair(desk.replica.cast_unsigned(), desk.batches);
        let attempt = Attempt { batch_id, replica: desk.replica, ring: desk.bell.may_ring() };
        #[cfg_attr(feature = "mutants", expect(unused_mut, reason = "it is wrapped"))]
        let mut connection = desk.writes.take().await?;
        #[cfg(feature = "mutants")]
        let mut connection = super::mutant::Pooled(Some(connection));
        let made = match &plain {
            Some(plain) => tokio::time::timeout_at(end, plain.make(batch, &attempt, &mut connection))
                .await
                .unwrap_or_else(|_| Err(Trouble::Unanswered("it took too long".into()))),
            None => tokio::time::timeout_at(end, attempt.make(&mut connection, batch))
                .await
                .unwrap_or_else(|_| Err(late("a commit", WITHIN).into())),
        };
        #[cfg(feature = "mutants")]
        let mut connection = connection.whole();
        let (known, heard) = match made {
            #[cfg(feature = "mutants")]
            Ok(committed) if mutant::is("acknowledge_before_commit") => {
                super::mutant::commit_later(connection);
                return Ok(committed);
            }
            Ok(committed) => {
                let sent = match plain {
                    Some(_) => Ok(()),
                    None => send_commit(&mut connection, end).await,
                };
                match sent {
                    Ok(()) => {
                        desk.writes.give_back(connection);
                        return Ok(committed);
                    }
                    Err(heard) => (Some(committed), heard),
                }
            }
            Err(Trouble::Unanswered(heard)) => (None, heard),
            Err(trouble @ (Trouble::Overtaken | Trouble::NotPlain)) => {
                if plain.is_none() {
                    // A connection that does not answer this either is thrown away, and nobody waits for it.
                    let undone = tokio::time::timeout_at(end, connection.execute("rollback")).await;
                    undone.map_err(|_| late("a rollback", WITHIN))?.map_err(unavailable)?;
                }
                if matches!(trouble, Trouble::NotPlain) {
                    plain = None;
                }
                desk.writes.give_back(connection);
                continue;
            }
            Err(Trouble::Failed(error)) => {
                tracing::warn!(%error, transaction = transaction(batch), changes = batch.len(), "a transaction failed");
                return Err(error);
            }
        };
        drop(connection);
        tracing::warn!(heard, transaction = transaction(batch), changes = batch.len(), "a commit was not answered");
        return match (settle::settle(desk, batch_id).await?, known) {
            (false, _) => Err(StoreError::Unavailable("postgres: a commit was lost; nothing of it happened".into())),
            (true, Some(committed)) => Ok(committed),
            (true, None) => plain::what_became(desk, batch_id, batch).await,
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

/// One try at a batch.
pub(super) struct Attempt {
    pub(super) batch_id: Uuid,
    pub(super) replica: i64,
    pub(super) ring: bool,
}

impl Attempt {
    /// Leaves word of what has changed, if anything has. Says which transaction it is.
    async fn note(
        &self,
        connection: &mut PgConnection,
        changed: impl ExactSizeIterator<Item = &AdvertisementId>,
    ) -> Result<Version, Trouble> {
        if changed.len() == 0 {
            return Ok(Version::default());
        }
        let ids = names(changed.map(AdvertisementId::as_bytes));
        let noted = sqlx::query_scalar(sql::NOTE_CHANGE).bind(self.batch_id).bind(self.replica).bind(ids);
        Ok(Version(noted.bind(self.ring).fetch_one(connection).await?))
    }

    /// Everything but `commit`.
    async fn make(&self, connection: &mut PgConnection, batch: &[Write]) -> Result<Committed, Trouble> {
        connection.execute("begin").await?;
        let before = Before::read(connection, &Touched::by(batch)).await?;
        let mut after = before.picture();
        let outcomes: Vec<Outcome> = batch.iter().map(|write| after.apply(write)).collect();
        let difference = Difference::between(&before, &after, &extended(batch, &outcomes), self.replica);
        difference.write(connection).await?;
        let changed = difference.changed();
        let version = self.note(&mut *connection, changed.iter()).await?;
        let step = |write: &Write| {
            let id = write.advertisement_id();
            let found = before.found.get(&id).filter(|found| found.stands);
            let before = found.map_or(Version::default(), |found| found.version);
            let stands = after.advertisements.contains_key(&id);
            let after = if changed.contains(&id) { version } else { before };
            Step { before, after: if stands { after } else { Version::default() } }
        };
        Ok(Committed { steps: batch.iter().map(step).collect(), outcomes })
    }
}

/// Whose heartbeats were taken.
fn extended(batch: &[Write], outcomes: &[Outcome]) -> BTreeSet<AdvertisementId> {
    let done = batch.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Done);
    done.filter(|(write, _)| matches!(write, Write::Extend { .. })).map(|(write, _)| write.advertisement_id()).collect()
}

/// What the database says about the ids that a batch names.
#[derive(Default)]
pub(super) struct Before {
    pub(super) found: HashMap<AdvertisementId, Found, IdState>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
}

impl Before {
    /// Locks and reads.
    async fn read(connection: &mut PgConnection, touched: &Touched) -> Result<Self, Trouble> {
        let mut before = Self::default();
        let locked = names(touched.locked.iter().map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::LOCK).bind(locked).fetch_all(&mut *connection).await? {
            let found = read::found(&row)?;
            before.found.insert(found.id, found);
        }
        if touched.reservations.is_empty() && touched.counted.is_empty() {
            return Ok(before);
        }
        let asked = names(touched.reservations.iter().map(ReservationId::as_bytes));
        let trusting = mutant::is("trust_the_index");
        let counted = names(touched.counted.iter().filter(|_| !trusting).map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::READ_RESERVATIONS).bind(asked).bind(counted).fetch_all(connection).await? {
            let reservation = read::reservation(&row, 0)?;
            before.reservations.extend(reservation.map(|reservation| (reservation.id, reservation)));
        }
        Ok(before)
    }

    /// The same, for the changes to be made in.
    fn picture(&self) -> Picture {
        let mut picture = Picture::default();
        for (id, found) in &self.found {
            picture.tombstones.extend(found.deleted_until.map(|until| (*id, until)));
            if found.stands {
                picture.add_standing(*id, (found.since, found.expires), found.join_seats, found.version);
            }
        }
        self.reservations.values().for_each(|it| picture.add_reservation(it.clone()));
        picture
    }
}

fn names<'a>(ids: impl Iterator<Item = &'a [u8; 16]>) -> Vec<Uuid> {
    ids.map(|id| Uuid::from_bytes(*id)).collect()
}

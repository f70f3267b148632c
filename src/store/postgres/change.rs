//! One batch of changes, in one transaction: lock what it touches, decide in plain code, write the difference. Most are
//! plainer than that, and one statement (`plain.rs`).
//!
//! Where another server was quicker with a name that nobody had, the batch begins again and finds the name there
//! (`attempt.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::Executor;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{AdvertisementId, IdState, ReservationId};
use crate::store::decide::Picture;
use crate::store::mutant;
use crate::store::postgres::attempt::{self, Attempt, Trouble, Work};
use crate::store::postgres::plain::{self, Plain};
use crate::store::postgres::read::{self, Found};
use crate::store::postgres::write::Difference;
use crate::store::postgres::{Desk, statements as sql};
use crate::store::touched::Touched;
use crate::store::{Committed, Outcome, Reservation, Step, StoreError, Version, Write, transaction};

/// Makes all changes and answers each. On an error none has happened, or nobody knows.
pub(super) async fn commit(desk: &mut Desk, batch: &[Write]) -> Result<Committed, StoreError> {
    let plain = Plain::of(batch).filter(|_| !mutant::is("acknowledge_before_commit"));
    attempt::commit(desk, Changes { batch, plain }).await
}

/// A batch, and how it can be written in one statement, if it can.
struct Changes<'a> {
    batch: &'a [Write],
    plain: Option<Plain<'a>>,
}

impl Work for Changes<'_> {
    type Done = Committed;

    fn name(&self) -> &'static str {
        transaction(self.batch)
    }

    fn changes(&self) -> usize {
        self.batch.len()
    }

    fn is_whole(&self) -> bool {
        self.plain.is_some()
    }

    fn decide_in_code(&mut self) {
        self.plain = None;
    }

    async fn make(&self, connection: &mut PgConnection, attempt: &Attempt) -> Result<Committed, Trouble> {
        match &self.plain {
            Some(plain) => plain.make(self.batch, attempt, connection).await,
            None => attempt.make(connection, self.batch).await,
        }
    }

    async fn what_became(&self, desk: &mut Desk, batch_id: Uuid) -> Result<Committed, StoreError> {
        plain::what_became(desk, batch_id, self.batch).await
    }
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

pub(super) fn names<'a>(ids: impl Iterator<Item = &'a [u8; 16]>) -> Vec<Uuid> {
    ids.map(|id| Uuid::from_bytes(*id)).collect()
}

//! One batch of changes to the queues, in one transaction: lock what it touches, decide in plain code, write the difference,
//! leave word of it.
//!
//! Locks are taken in one order: the places of users who enter, tickets, matches, penalties, ratings, then the rows that are made;
//! and within each kind by name. Where another server was quicker with a row that this batch wants to make, it begins again and
//! finds the row there (`attempt.rs`).

use std::collections::{BTreeMap, BTreeSet};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::rating::Played;
use crate::store::StoreError;
use crate::store::postgres::Desk;
use crate::store::postgres::attempt::{self, Attempt, Trouble, Work};
use crate::store::postgres::change::names;
use crate::store::postgres::queues::{read, statements as sql, write};
use crate::store::queues::difference::Difference;
use crate::store::queues::picture::Picture;
use crate::store::queues::touched::Touched;
use crate::store::queues::{QueueOutcome, QueueWrite, transaction};

/// Makes all changes and answers each. On an error none has happened, or nobody knows.
pub(super) async fn commit(desk: &mut Desk, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
    attempt::commit(desk, Changes { batch, touched: Touched::by(batch) }).await
}

/// A batch, and what it touches.
struct Changes<'a> {
    batch: &'a [QueueWrite],
    touched: Touched,
}

impl Work for Changes<'_> {
    type Done = Vec<QueueOutcome>;

    fn name(&self) -> &'static str {
        transaction(self.batch)
    }

    fn changes(&self) -> usize {
        self.batch.len()
    }

    async fn make(&self, connection: &mut PgConnection, attempt: &Attempt) -> Result<Self::Done, Trouble> {
        let before = self.look(connection).await?;
        let mut after = before.clone();
        let outcomes = after.apply_all(self.batch);
        // Tickets are read before their users: one that another server entered in between is its own obstacle.
        if self.batch.iter().zip(&outcomes).any(is_in_its_own_way) {
            return Err(Trouble::Overtaken);
        }
        let difference = Difference::between(&before, &after);
        write::write(&difference, connection).await?;
        note(&difference, connection, attempt).await?;
        Ok(outcomes)
    }

    async fn what_became(&self, _: &mut Desk, _: Uuid) -> Result<Self::Done, StoreError> {
        Err(StoreError::Unavailable("postgres: a commit has happened, and nobody knows what it came to".into()))
    }
}

impl Changes<'_> {
    /// Begins, locks and reads.
    async fn look(&self, connection: &mut PgConnection) -> Result<Picture, Trouble> {
        let touched = &self.touched;
        let mut picture = Picture::default();
        let begin = sql::begin(&places(&touched.entering));
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection).await?;
        if !touched.tickets.is_empty() {
            let ids = names(touched.tickets.iter().map(TicketId::as_bytes));
            for row in &sqlx::query(sql::LOCK_TICKETS).bind(ids).fetch_all(&mut *connection).await? {
                let stored = read::ticket(row)?;
                picture.tickets.insert(stored.ticket.id, stored);
            }
        }
        let played = names(touched.matches.iter().map(MatchId::as_bytes));
        if !played.is_empty() {
            for row in &sqlx::query(sql::LOCK_MATCHES).bind(&played).fetch_all(&mut *connection).await? {
                let play = read::play(row)?;
                picture.matches.insert(play.id, play);
            }
        }
        if !touched.punished.is_empty() {
            let users = names(touched.punished.iter().map(UserKey::as_bytes));
            sqlx::query(sql::LOCK_PENALTIES).bind(users).execute(&mut *connection).await?;
        }
        if !touched.users.is_empty() || !played.is_empty() {
            let users = names(touched.users.iter().map(UserKey::as_bytes));
            for row in &sqlx::query(sql::USERS).bind(users).bind(played).fetch_all(&mut *connection).await? {
                read::user(row, &mut picture)?;
            }
        }
        self.look_at_results(connection, &mut picture).await?;
        Ok(picture)
    }

    /// Locks and reads ratings, and reads what results and scores there are already.
    async fn look_at_results(&self, connection: &mut PgConnection, picture: &mut Picture) -> Result<(), Trouble> {
        let touched = &self.touched;
        if !touched.ratings.is_empty() {
            let users: BTreeSet<UserKey> = touched.ratings.iter().map(|(user, _)| *user).collect();
            let users = names(users.iter().map(UserKey::as_bytes));
            for row in &sqlx::query(sql::LOCK_RATINGS).bind(&users).fetch_all(&mut *connection).await? {
                let rating = read::rating(row)?;
                picture.ratings.insert((rating.user, rating.set_id), rating);
            }
            for set_id in &touched.played {
                let query = sqlx::query(sql::PLAYED).bind(i64::from(set_id.0)).bind(&users);
                if let Some(row) = query.fetch_optional(&mut *connection).await? {
                    let tells = read::rating(&row)?.skill();
                    picture.played_elsewhere.insert(*set_id, Played::default().with(&tells));
                }
            }
        }
        if !touched.results.is_empty() {
            let ids = names(touched.results.iter().map(MatchId::as_bytes));
            for row in &sqlx::query(sql::RESULTS).bind(ids).fetch_all(&mut *connection).await? {
                let result = read::result(row)?;
                picture.results.insert(result.report.match_id, result);
            }
        }
        if !touched.scores.is_empty() {
            let ids: BTreeSet<MatchId> = touched.scores.iter().map(|(id, _)| *id).collect();
            let ids = names(ids.iter().map(MatchId::as_bytes));
            for row in &sqlx::query(sql::SCORES).bind(ids).fetch_all(connection).await? {
                read::score(row, picture)?;
            }
        }
        Ok(())
    }
}

/// Whether a party is refused for the very ticket that it asks for.
fn is_in_its_own_way((write, outcome): (&QueueWrite, &QueueOutcome)) -> bool {
    match (write, outcome) {
        (QueueWrite::Enter { ticket, .. }, QueueOutcome::AlreadyQueued { ticket: by, .. }) => *by == ticket.id,
        _ => false,
    }
}

/// The places of users who enter, in order, and whether anybody is to have one alone. There are few places, so that a batch of
/// a thousand parties takes few locks; users of one place wait for each other for no reason, but not for long.
fn places(entering: &BTreeSet<(UserKey, bool)>) -> Vec<(u8, bool)> {
    let mut places: BTreeMap<u8, bool> = BTreeMap::new();
    for (user, alone) in entering {
        *places.entry(user.as_bytes()[0]).or_default() |= alone;
    }
    places.into_iter().collect()
}

/// Leaves word of what has changed, if anything has.
async fn note(difference: &Difference<'_>, connection: &mut PgConnection, attempt: &Attempt) -> Result<(), Trouble> {
    let tickets = difference.made_tickets.iter().chain(&difference.changed_tickets);
    let tickets = names(tickets.map(|stored| stored.ticket.id.as_bytes()));
    let matches = difference.made_matches.iter().chain(&difference.changed_matches);
    let matches = names(matches.map(|play| play.id.as_bytes()));
    let ratings = difference.made_ratings.iter().chain(&difference.changed_ratings);
    let rated: BTreeSet<UserKey> = ratings.map(|row| row.user).collect();
    let written = !difference.made_results.is_empty() || !difference.made_scores.is_empty();
    if tickets.is_empty() && matches.is_empty() && rated.is_empty() && !written {
        return Ok(());
    }
    let rated = names(rated.iter().map(UserKey::as_bytes));
    let noted = sqlx::query(sql::NOTE_CHANGE).bind(attempt.batch_id).bind(attempt.replica);
    noted.bind(tickets).bind(matches).bind(rated).bind(attempt.ring).execute(connection).await?;
    Ok(())
}

//! Writes the difference between what was found and what a batch came to: one statement for each kind of row.

use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::time::UnixMs;
use crate::store::postgres::commit::{CommitError, check_row_count};
use crate::store::postgres::queues::statements as sql;
use crate::store::postgres::transaction::to_uuids;
use crate::store::queues::queue_rows::TicketUser;
use crate::store::queues::record_result::history_slot;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::{QueueKey, RatingRow, StoredTicket};
use crate::store::rows::queue::{MatchRow, TicketRow, TicketStateRow};
use crate::store::rows::result::ResultRow;
use crate::store::rows::to_ms;

/// What goes goes first: a user may leave one ticket or match and be in another.
pub(super) async fn write_changes(difference: &QueueRowChanges<'_>, to: &mut PgConnection) -> Result<(), CommitError> {
    delete_users(&difference.deleted_ticket_users, &difference.deleted_match_users, to).await?;
    insert_tickets(&difference.inserted_tickets, to).await?;
    update_ticket_states(&difference.updated_tickets, to).await?;
    let made = write_matches(sql::INSERT_MATCHES, difference.inserted_matches.iter().map(|it| &***it), to).await?;
    check_row_count(made, difference.inserted_matches.len())?;
    write_matches(sql::UPDATE_MATCHES, difference.updated_matches.iter().map(|it| &***it), to).await?;
    insert_ticket_users(&difference.inserted_ticket_users, to).await?;
    insert_match_users(&difference.inserted_match_users, to).await?;
    let made = write_penalties(sql::INSERT_PENALTIES, &difference.inserted_penalties, to).await?;
    check_row_count(made, difference.inserted_penalties.len())?;
    write_penalties(sql::UPDATE_PENALTIES, &difference.updated_penalties, to).await?;
    let made = write_ratings(sql::INSERT_RATINGS, &difference.inserted_ratings, to).await?;
    check_row_count(made, difference.inserted_ratings.len())?;
    write_ratings(sql::UPDATE_RATINGS, &difference.updated_ratings, to).await?;
    insert_results(&difference.inserted_results, to).await?;
    upsert_rating_changes(&difference.upserted_rating_changes, to).await?;
    insert_feedback(&difference.inserted_feedback, to).await
}

async fn delete_users(
    spots: &[(UserKey, QueueKey)],
    players: &[UserKey],
    to: &mut PgConnection,
) -> Result<(), CommitError> {
    if !spots.is_empty() {
        let query = sqlx::query(sql::DELETE_TICKET_USERS)
            .bind(to_uuids(spots.iter().map(|(user, _)| user.as_bytes())))
            .bind(to_column(spots, |(_, queue)| i64::from(queue.set_id.0)))
            .bind(to_column(spots, |(_, queue)| queue.silo.0.cast_signed()));
        query.execute(&mut *to).await?;
    }
    if !players.is_empty() {
        let users = to_uuids(players.iter().map(UserKey::as_bytes));
        sqlx::query(sql::DELETE_MATCH_USERS).bind(users).execute(to).await?;
    }
    Ok(())
}

/// One array out of many rows.
fn to_column<'a, T, C>(rows: impl IntoIterator<Item = &'a T>, of: impl Fn(&'a T) -> C) -> Vec<C>
where
    T: 'a,
{
    rows.into_iter().map(of).collect()
}

/// A number that the database keeps in 16 bits; none of ours is longer.
fn to_int16(number: i64) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

async fn insert_tickets(tickets: &[&StoredTicket], to: &mut PgConnection) -> Result<(), CommitError> {
    if tickets.is_empty() {
        return Ok(());
    }
    let rows: Vec<TicketRow<'_>> = tickets.iter().map(|it| TicketRow::encode(&it.ticket, it.request_digest)).collect();
    let standings: Vec<TicketStateRow> = tickets.iter().map(|it| TicketStateRow::encode(it)).collect();
    let query = sqlx::query(sql::INSERT_TICKETS)
        .bind(to_uuids(rows.iter().map(|row| &row.id)))
        .bind(to_column(&rows, |row| row.silo_id))
        .bind(to_column(&rows, |row| row.set_id))
        .bind(to_column(&rows, |row| row.entered_ms))
        .bind(to_uuids(rows.iter().map(|row| &row.payload)))
        .bind(to_column(&rows, |row| &*row.body))
        .bind(to_column(&standings, |it| to_int16(it.state)))
        .bind(to_column(&standings, |it| it.match_id.map(Uuid::from_bytes)))
        .bind(to_column(&standings, |it| it.ending.map(to_int16)))
        .bind(to_column(&standings, |it| it.expires_ms))
        .bind(to_column(&standings, |it| it.forget_at_ms))
        .bind(to_column(&standings, |it| it.version));
    check_row_count(query.execute(to).await?.rows_affected(), rows.len())
}

async fn update_ticket_states(tickets: &[&StoredTicket], to: &mut PgConnection) -> Result<(), CommitError> {
    if tickets.is_empty() {
        return Ok(());
    }
    let standings: Vec<TicketStateRow> = tickets.iter().map(|it| TicketStateRow::encode(it)).collect();
    let query = sqlx::query(sql::UPDATE_TICKET_STATES)
        .bind(to_uuids(tickets.iter().map(|it| it.ticket.id.as_bytes())))
        .bind(to_column(&standings, |it| to_int16(it.state)))
        .bind(to_column(&standings, |it| it.match_id.map(Uuid::from_bytes)))
        .bind(to_column(&standings, |it| it.ending.map(to_int16)))
        .bind(to_column(&standings, |it| it.expires_ms))
        .bind(to_column(&standings, |it| it.forget_at_ms))
        .bind(to_column(&standings, |it| it.version));
    query.execute(to).await?;
    Ok(())
}

async fn write_matches(
    statement: &'static str,
    matches: impl Iterator<Item = &Match> + Send,
    to: &mut PgConnection,
) -> Result<u64, CommitError> {
    let rows: Vec<MatchRow<'_>> = matches.map(MatchRow::encode).collect();
    if rows.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(rows.iter().map(|row| &row.id)))
        .bind(to_column(&rows, |row| row.silo_id))
        .bind(to_column(&rows, |row| row.set_id))
        .bind(to_column(&rows, |row| row.proposed_ms))
        .bind(to_column(&rows, |row| row.version))
        .bind(to_column(&rows, |row| to_int16(row.stage)))
        .bind(to_column(&rows, |row| row.forget_at_ms))
        .bind(to_column(&rows, |row| &*row.body));
    Ok(query.execute(to).await?.rows_affected())
}

async fn insert_ticket_users(spots: &[(UserKey, TicketUser)], to: &mut PgConnection) -> Result<(), CommitError> {
    if spots.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::INSERT_TICKET_USERS)
        .bind(to_uuids(spots.iter().map(|(user, _)| user.as_bytes())))
        .bind(to_column(spots, |(_, spot)| i64::from(spot.queue.set_id.0)))
        .bind(to_column(spots, |(_, spot)| spot.queue.silo.0.cast_signed()))
        .bind(to_uuids(spots.iter().map(|(_, spot)| spot.ticket.as_bytes())))
        .bind(to_column(spots, |(_, spot)| spot.exclusive));
    check_row_count(query.execute(to).await?.rows_affected(), spots.len())
}

async fn insert_match_users(players: &[(UserKey, MatchId)], to: &mut PgConnection) -> Result<(), CommitError> {
    if players.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::INSERT_MATCH_USERS)
        .bind(to_uuids(players.iter().map(|(user, _)| user.as_bytes())))
        .bind(to_uuids(players.iter().map(|(_, play)| play.as_bytes())));
    check_row_count(query.execute(to).await?.rows_affected(), players.len())
}

async fn write_penalties(
    statement: &'static str,
    penalties: &[((UserKey, SetId), Penalty)],
    to: &mut PgConnection,
) -> Result<u64, CommitError> {
    if penalties.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(penalties.iter().map(|((user, _), _)| user.as_bytes())))
        .bind(to_column(penalties, |((_, set_id), _)| i64::from(set_id.0)))
        .bind(to_column(penalties, |(_, it)| i64::from(it.level)))
        .bind(to_column(penalties, |(_, it)| to_ms(it.cooldown_until)))
        .bind(to_column(penalties, |(_, it)| to_ms(it.resets_at)));
    Ok(query.execute(to).await?.rows_affected())
}

async fn write_ratings(
    statement: &'static str,
    ratings: &[&RatingRow],
    to: &mut PgConnection,
) -> Result<u64, CommitError> {
    if ratings.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(ratings.iter().map(|it| it.user.as_bytes())))
        .bind(to_column(ratings, |it| i64::from(it.set_id.0)))
        .bind(to_column(ratings, |it| it.rating.rating))
        .bind(to_column(ratings, |it| it.rating.deviation))
        .bind(to_column(ratings, |it| it.volatility))
        .bind(to_column(ratings, |it| i64::from(it.match_count)))
        .bind(to_column(ratings, |it| to_ms(it.last_match_at)))
        .bind(to_column(ratings, |it| it.streak))
        .bind(to_column(ratings, |it| i64::from(it.satisfaction.abandoned_matches)))
        .bind(to_column(ratings, |it| i64::from(it.satisfaction.feedback_count)))
        .bind(to_column(ratings, |it| i64::from(it.satisfaction.feedback_sum)))
        .bind(to_column(ratings, |it| i64::from(it.periods_played)));
    Ok(query.execute(to).await?.rows_affected())
}

async fn insert_results(results: &[&MatchResult], to: &mut PgConnection) -> Result<(), CommitError> {
    if results.is_empty() {
        return Ok(());
    }
    let rows: Vec<ResultRow<'_>> = results.iter().map(|it| ResultRow::encode(it)).collect();
    let query = sqlx::query(sql::INSERT_RESULTS)
        .bind(to_uuids(rows.iter().map(|row| &row.id)))
        .bind(to_column(&rows, |row| row.silo_id))
        .bind(to_column(&rows, |row| row.set_id))
        .bind(to_column(&rows, |row| row.reported_ms))
        .bind(to_uuids(rows.iter().map(|row| &row.payload)))
        .bind(to_column(&rows, |row| &*row.body));
    check_row_count(query.execute(to).await?.rows_affected(), rows.len())
}

async fn upsert_rating_changes(changes: &[&RatingHistoryEntry], to: &mut PgConnection) -> Result<(), CommitError> {
    if changes.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::UPSERT_RATING_CHANGES)
        .bind(to_uuids(changes.iter().map(|it| it.user.as_bytes())))
        .bind(to_column(changes, |it| i64::from(it.set_id.0)))
        .bind(to_column(changes, |it| i64::from(history_slot(it.rated_match_number))))
        .bind(to_column(changes, |it| i64::from(it.rated_match_number)))
        .bind(to_uuids(changes.iter().map(|it| it.match_id.as_bytes())))
        .bind(to_column(changes, |it| to_ms(it.reported_at)))
        .bind(to_column(changes, |it| i64::from(it.rank)))
        .bind(to_column(changes, |it| i64::from(it.side_count)))
        .bind(to_column(changes, |it| it.before.rating))
        .bind(to_column(changes, |it| it.before.deviation))
        .bind(to_column(changes, |it| it.after.rating))
        .bind(to_column(changes, |it| it.after.deviation));
    query.execute(to).await?;
    Ok(())
}

async fn insert_feedback(scores: &[(MatchId, UserKey, u8, UnixMs)], to: &mut PgConnection) -> Result<(), CommitError> {
    if scores.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::INSERT_FEEDBACK)
        .bind(to_uuids(scores.iter().map(|(id, ..)| id.as_bytes())))
        .bind(to_uuids(scores.iter().map(|(_, user, ..)| user.as_bytes())))
        .bind(to_column(scores, |(_, _, score, _)| i16::from(*score)))
        .bind(to_column(scores, |(.., at)| to_ms(*at)));
    check_row_count(query.execute(to).await?.rows_affected(), scores.len())
}

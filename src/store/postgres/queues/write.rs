//! Writes the difference between what was found and what a batch came to: one statement for each kind of row.

use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::life::Match;
use crate::domain::life::penalty::Penalty;
use crate::domain::result::{MatchResult, RatingChange};
use crate::domain::time::UnixMs;
use crate::store::postgres::attempt::{Trouble, all};
use crate::store::postgres::change::names;
use crate::store::postgres::queues::statements as sql;
use crate::store::queues::conclude::slot;
use crate::store::queues::difference::Difference;
use crate::store::queues::picture::Spot;
use crate::store::queues::{QueueKey, RatingRow, StoredTicket};
use crate::store::rows::queue::{MatchRow, StandingRow, TicketRow};
use crate::store::rows::result::ResultRow;
use crate::store::rows::to_ms;

/// What goes goes first: a user may leave one ticket or match and be in another.
pub(super) async fn write(difference: &Difference<'_>, to: &mut PgConnection) -> Result<(), Trouble> {
    remove(&difference.removed_spots, &difference.removed_players, to).await?;
    make_tickets(&difference.made_tickets, to).await?;
    change_tickets(&difference.changed_tickets, to).await?;
    let made = put_matches(sql::MAKE_MATCHES, difference.made_matches.iter().map(|it| &***it), to).await?;
    all(made, difference.made_matches.len())?;
    put_matches(sql::CHANGE_MATCHES, difference.changed_matches.iter().map(|it| &***it), to).await?;
    make_spots(&difference.made_spots, to).await?;
    make_players(&difference.made_players, to).await?;
    let made = put_penalties(sql::MAKE_PENALTIES, &difference.made_penalties, to).await?;
    all(made, difference.made_penalties.len())?;
    put_penalties(sql::CHANGE_PENALTIES, &difference.changed_penalties, to).await?;
    let made = put_ratings(sql::MAKE_RATINGS, &difference.made_ratings, to).await?;
    all(made, difference.made_ratings.len())?;
    put_ratings(sql::CHANGE_RATINGS, &difference.changed_ratings, to).await?;
    make_results(&difference.made_results, to).await?;
    put_changes(&difference.rating_changes, to).await?;
    make_scores(&difference.made_scores, to).await
}

async fn remove(spots: &[(UserKey, QueueKey)], players: &[UserKey], to: &mut PgConnection) -> Result<(), Trouble> {
    if !spots.is_empty() {
        let query = sqlx::query(sql::REMOVE_TICKET_USERS)
            .bind(names(spots.iter().map(|(user, _)| user.as_bytes())))
            .bind(column(spots, |(_, queue)| i64::from(queue.set_id.0)))
            .bind(column(spots, |(_, queue)| queue.silo.0.cast_signed()));
        query.execute(&mut *to).await?;
    }
    if !players.is_empty() {
        let users = names(players.iter().map(UserKey::as_bytes));
        sqlx::query(sql::REMOVE_MATCH_USERS).bind(users).execute(to).await?;
    }
    Ok(())
}

/// One array out of many rows.
fn column<'a, T, C>(rows: impl IntoIterator<Item = &'a T>, of: impl Fn(&'a T) -> C) -> Vec<C>
where
    T: 'a,
{
    rows.into_iter().map(of).collect()
}

/// A number that the database keeps in 16 bits; none of ours is longer.
fn small(number: i64) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

async fn make_tickets(tickets: &[&StoredTicket], to: &mut PgConnection) -> Result<(), Trouble> {
    if tickets.is_empty() {
        return Ok(());
    }
    let rows: Vec<TicketRow<'_>> = tickets.iter().map(|it| TicketRow::of(&it.ticket, it.payload)).collect();
    let standings: Vec<StandingRow> = tickets.iter().map(|it| StandingRow::of(it)).collect();
    let query = sqlx::query(sql::MAKE_TICKETS)
        .bind(names(rows.iter().map(|row| &row.id)))
        .bind(column(&rows, |row| row.silo_id))
        .bind(column(&rows, |row| row.set_id))
        .bind(column(&rows, |row| row.entered_ms))
        .bind(names(rows.iter().map(|row| &row.payload)))
        .bind(column(&rows, |row| &*row.body))
        .bind(column(&standings, |it| small(it.state)))
        .bind(column(&standings, |it| it.match_id.map(Uuid::from_bytes)))
        .bind(column(&standings, |it| it.ending.map(small)))
        .bind(column(&standings, |it| it.expires_ms))
        .bind(column(&standings, |it| it.forget_at_ms))
        .bind(column(&standings, |it| it.edition));
    all(query.execute(to).await?.rows_affected(), rows.len())
}

async fn change_tickets(tickets: &[&StoredTicket], to: &mut PgConnection) -> Result<(), Trouble> {
    if tickets.is_empty() {
        return Ok(());
    }
    let standings: Vec<StandingRow> = tickets.iter().map(|it| StandingRow::of(it)).collect();
    let query = sqlx::query(sql::CHANGE_TICKETS)
        .bind(names(tickets.iter().map(|it| it.ticket.id.as_bytes())))
        .bind(column(&standings, |it| small(it.state)))
        .bind(column(&standings, |it| it.match_id.map(Uuid::from_bytes)))
        .bind(column(&standings, |it| it.ending.map(small)))
        .bind(column(&standings, |it| it.expires_ms))
        .bind(column(&standings, |it| it.forget_at_ms))
        .bind(column(&standings, |it| it.edition));
    query.execute(to).await?;
    Ok(())
}

async fn put_matches(
    statement: &'static str,
    matches: impl Iterator<Item = &Match> + Send,
    to: &mut PgConnection,
) -> Result<u64, Trouble> {
    let rows: Vec<MatchRow<'_>> = matches.map(MatchRow::of).collect();
    if rows.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(names(rows.iter().map(|row| &row.id)))
        .bind(column(&rows, |row| row.silo_id))
        .bind(column(&rows, |row| row.set_id))
        .bind(column(&rows, |row| row.proposed_ms))
        .bind(column(&rows, |row| row.edition))
        .bind(column(&rows, |row| small(row.stage)))
        .bind(column(&rows, |row| row.forget_at_ms))
        .bind(column(&rows, |row| &*row.body));
    Ok(query.execute(to).await?.rows_affected())
}

async fn make_spots(spots: &[(UserKey, Spot)], to: &mut PgConnection) -> Result<(), Trouble> {
    if spots.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::MAKE_TICKET_USERS)
        .bind(names(spots.iter().map(|(user, _)| user.as_bytes())))
        .bind(column(spots, |(_, spot)| i64::from(spot.queue.set_id.0)))
        .bind(column(spots, |(_, spot)| spot.queue.silo.0.cast_signed()))
        .bind(names(spots.iter().map(|(_, spot)| spot.ticket.as_bytes())))
        .bind(column(spots, |(_, spot)| spot.alone));
    all(query.execute(to).await?.rows_affected(), spots.len())
}

async fn make_players(players: &[(UserKey, MatchId)], to: &mut PgConnection) -> Result<(), Trouble> {
    if players.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::MAKE_MATCH_USERS)
        .bind(names(players.iter().map(|(user, _)| user.as_bytes())))
        .bind(names(players.iter().map(|(_, play)| play.as_bytes())));
    all(query.execute(to).await?.rows_affected(), players.len())
}

async fn put_penalties(
    statement: &'static str,
    penalties: &[((UserKey, SetId), Penalty)],
    to: &mut PgConnection,
) -> Result<u64, Trouble> {
    if penalties.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(names(penalties.iter().map(|((user, _), _)| user.as_bytes())))
        .bind(column(penalties, |((_, set_id), _)| i64::from(set_id.0)))
        .bind(column(penalties, |(_, it)| i64::from(it.rung)))
        .bind(column(penalties, |(_, it)| to_ms(it.until)))
        .bind(column(penalties, |(_, it)| to_ms(it.resets_at)));
    Ok(query.execute(to).await?.rows_affected())
}

async fn put_ratings(statement: &'static str, ratings: &[&RatingRow], to: &mut PgConnection) -> Result<u64, Trouble> {
    if ratings.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(names(ratings.iter().map(|it| it.user.as_bytes())))
        .bind(column(ratings, |it| i64::from(it.set_id.0)))
        .bind(column(ratings, |it| it.rated.rating))
        .bind(column(ratings, |it| it.rated.deviation))
        .bind(column(ratings, |it| it.volatility))
        .bind(column(ratings, |it| i64::from(it.matches)))
        .bind(column(ratings, |it| to_ms(it.last)))
        .bind(column(ratings, |it| it.streak))
        .bind(column(ratings, |it| i64::from(it.satisfaction.abandoned)))
        .bind(column(ratings, |it| i64::from(it.satisfaction.scores)))
        .bind(column(ratings, |it| i64::from(it.satisfaction.score_sum)))
        .bind(column(ratings, |it| i64::from(it.played)));
    Ok(query.execute(to).await?.rows_affected())
}

async fn make_results(results: &[&MatchResult], to: &mut PgConnection) -> Result<(), Trouble> {
    if results.is_empty() {
        return Ok(());
    }
    let rows: Vec<ResultRow<'_>> = results.iter().map(|it| ResultRow::of(it)).collect();
    let query = sqlx::query(sql::MAKE_RESULTS)
        .bind(names(rows.iter().map(|row| &row.id)))
        .bind(column(&rows, |row| row.silo_id))
        .bind(column(&rows, |row| row.set_id))
        .bind(column(&rows, |row| row.reported_ms))
        .bind(names(rows.iter().map(|row| &row.payload)))
        .bind(column(&rows, |row| &*row.body));
    all(query.execute(to).await?.rows_affected(), rows.len())
}

async fn put_changes(changes: &[&RatingChange], to: &mut PgConnection) -> Result<(), Trouble> {
    if changes.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::PUT_CHANGES)
        .bind(names(changes.iter().map(|it| it.user.as_bytes())))
        .bind(column(changes, |it| i64::from(it.set_id.0)))
        .bind(column(changes, |it| i64::from(slot(it.number))))
        .bind(column(changes, |it| i64::from(it.number)))
        .bind(names(changes.iter().map(|it| it.match_id.as_bytes())))
        .bind(column(changes, |it| to_ms(it.at)))
        .bind(column(changes, |it| i64::from(it.rank)))
        .bind(column(changes, |it| i64::from(it.sides)))
        .bind(column(changes, |it| it.before.rating))
        .bind(column(changes, |it| it.before.deviation))
        .bind(column(changes, |it| it.after.rating))
        .bind(column(changes, |it| it.after.deviation));
    query.execute(to).await?;
    Ok(())
}

async fn make_scores(scores: &[(MatchId, UserKey, u8, UnixMs)], to: &mut PgConnection) -> Result<(), Trouble> {
    if scores.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::MAKE_SCORES)
        .bind(names(scores.iter().map(|(id, ..)| id.as_bytes())))
        .bind(names(scores.iter().map(|(_, user, ..)| user.as_bytes())))
        .bind(column(scores, |(_, _, score, _)| i16::from(*score)))
        .bind(column(scores, |(.., at)| to_ms(*at)));
    all(query.execute(to).await?.rows_affected(), scores.len())
}

//! One batch of changes to the queues, in one transaction: read what it touches, decide in plain code, write the difference.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::domain::id::{MatchId, SetId, TicketId, UserKey};
use crate::domain::life::Match;
use crate::domain::life::penalty::Penalty;
use crate::domain::rating::Played;
use crate::domain::result::{MatchResult, RatingChange, Satisfaction};
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::queues::conclude::slot;
use crate::store::queues::difference::Difference;
use crate::store::queues::picture::{Picture, Spot};
use crate::store::queues::touched::Touched;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, RatingRow, StoredTicket};
use crate::store::rows::queue::{MatchRow, StandingRow, TicketRow};
use crate::store::rows::queue_user::{
    change_checksum, penalty_checksum, player_checksum, rating_checksum, score_checksum, spot_checksum,
};
use crate::store::rows::result::ResultRow;
use crate::store::rows::to_ms;
use crate::store::sqlite::change::json_array;
use crate::store::sqlite::log::Length;
use crate::store::sqlite::queues::{read, statements as sql};
use crate::store::sqlite::statements::{Binds, Script};
use crate::store::sqlite::unavailable;

/// Makes all changes and answers each, and says how long the log has become. On an error none has happened, and the
/// connection may be within a transaction: nothing but closing it is safe.
pub(super) async fn commit(
    connection: &mut SqliteConnection,
    batch: &[QueueWrite],
) -> Result<(Vec<QueueOutcome>, Length), StoreError> {
    let before = look(connection, &Touched::by(batch)).await?;
    let mut after = before.clone();
    let outcomes = after.apply_all(batch);
    let script = script(&Difference::between(&before, &after));
    let row = script.run_and_commit(connection).await.map_err(unavailable)?;
    let number = |index| row.try_get::<i64, _>(index).map_err(unavailable);
    Ok((outcomes, Length { pages: number(1)?, moved: number(2)? }))
}

/// Begins the transaction and reads what the database says about the ids that a batch names.
async fn look(connection: &mut SqliteConnection, touched: &Touched) -> Result<Picture, StoreError> {
    let mut picture = Picture::default();
    sqlx::query(sql::BEGIN).execute(&mut *connection).await.map_err(unavailable)?;
    if !touched.tickets.is_empty() {
        let wanted = json_array(touched.tickets.iter().map(TicketId::as_bytes));
        let rows = sqlx::query(sql::TICKETS).bind(wanted).fetch_all(&mut *connection).await.map_err(unavailable)?;
        for row in &rows {
            let stored = read::ticket(row)?;
            picture.tickets.insert(stored.ticket.id, stored);
        }
    }
    let played = json_array(touched.matches.iter().map(MatchId::as_bytes));
    if !touched.matches.is_empty() {
        let rows = sqlx::query(sql::MATCHES).bind(&played).fetch_all(&mut *connection).await.map_err(unavailable)?;
        for row in &rows {
            let play = read::play(row)?;
            picture.matches.insert(play.id, play);
        }
    }
    if !touched.users.is_empty() || !touched.matches.is_empty() {
        let wanted = json_array(touched.users.iter().map(UserKey::as_bytes));
        let query = sqlx::query(sql::USERS).bind(wanted).bind(played);
        for row in &query.fetch_all(&mut *connection).await.map_err(unavailable)? {
            read::user(row, &mut picture)?;
        }
    }
    look_at_results(connection, touched, &mut picture).await?;
    Ok(picture)
}

/// Reads what results and ratings there are already.
async fn look_at_results(
    connection: &mut SqliteConnection,
    touched: &Touched,
    picture: &mut Picture,
) -> Result<(), StoreError> {
    if !touched.results.is_empty() {
        let wanted = json_array(touched.results.iter().map(MatchId::as_bytes));
        for row in &sqlx::query(sql::RESULTS).bind(wanted).fetch_all(&mut *connection).await.map_err(unavailable)? {
            let result = read::result(row)?;
            picture.results.insert(result.report.match_id, result);
        }
    }
    if !touched.scores.is_empty() {
        let matches: BTreeSet<MatchId> = touched.scores.iter().map(|(id, _)| *id).collect();
        let wanted = json_array(matches.iter().map(MatchId::as_bytes));
        for row in &sqlx::query(sql::SCORES).bind(wanted).fetch_all(&mut *connection).await.map_err(unavailable)? {
            read::score(row, picture)?;
        }
    }
    if !touched.ratings.is_empty() {
        let users: BTreeSet<UserKey> = touched.ratings.iter().map(|(user, _)| *user).collect();
        let wanted = json_array(users.iter().map(UserKey::as_bytes));
        for row in &sqlx::query(sql::RATINGS).bind(&wanted).fetch_all(&mut *connection).await.map_err(unavailable)? {
            let rating = read::rating(row)?;
            picture.ratings.insert((rating.user, rating.set_id), rating);
        }
        for set_id in &touched.played {
            let query = sqlx::query(sql::PLAYED).bind(i64::from(set_id.0)).bind(&wanted);
            if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(unavailable)? {
                let tells = read::rating(&row)?.skill();
                picture.played_elsewhere.insert(*set_id, Played::default().with(&tells));
            }
        }
    }
    Ok(())
}

/// What goes goes first: a user may leave one ticket or match and be in another.
fn script(difference: &Difference<'_>) -> Script {
    let mut script = Script::default();
    script.add(&sql::REMOVE_TICKET_USERS, &difference.removed_spots, bind_queue_user);
    script.add(&sql::REMOVE_MATCH_USERS, &difference.removed_players, bind_user);
    script.add(&sql::MAKE_TICKETS, &difference.made_tickets, bind_ticket);
    script.add(&sql::CHANGE_TICKETS, &difference.changed_tickets, bind_standing);
    script.add(&sql::PUT_MATCHES, &difference.made_matches, bind_match);
    script.add(&sql::PUT_MATCHES, &difference.changed_matches, bind_match);
    script.add(&sql::MAKE_TICKET_USERS, &difference.made_spots, bind_spot);
    script.add(&sql::MAKE_MATCH_USERS, &difference.made_players, bind_player);
    script.add(&sql::PUT_PENALTIES, &difference.made_penalties, bind_penalty);
    script.add(&sql::PUT_PENALTIES, &difference.changed_penalties, bind_penalty);
    script.add(&sql::PUT_RATINGS, &difference.made_ratings, bind_rating);
    script.add(&sql::PUT_RATINGS, &difference.changed_ratings, bind_rating);
    script.add(&sql::MAKE_RESULTS, &difference.made_results, bind_result);
    script.add(&sql::PUT_CHANGES, &difference.rating_changes, bind_change);
    script.add(&sql::MAKE_SCORES, &difference.made_scores, bind_score);
    script
}

fn bind_user(user: &UserKey, to: &mut Binds) {
    to.add(user.as_bytes().as_slice());
}

fn bind_queue_user((user, queue): &(UserKey, QueueKey), to: &mut Binds) {
    bind_user(user, to);
    to.add(i64::from(queue.set_id.0)).add(queue.silo.0.cast_signed());
}

fn bind_ticket(stored: &&StoredTicket, to: &mut Binds) {
    let row = TicketRow::of(&stored.ticket, stored.payload);
    to.add(row.id.as_slice()).add(row.silo_id).add(row.set_id).add(row.entered_ms).add(row.payload.as_slice());
    to.add(&*row.body).add(row.checksum());
    bind_columns(stored, to);
}

fn bind_standing(stored: &&StoredTicket, to: &mut Binds) {
    to.add(stored.ticket.id.as_bytes().as_slice());
    bind_columns(stored, to);
}

fn bind_columns(stored: &StoredTicket, to: &mut Binds) {
    let standing = StandingRow::of(stored);
    to.add(standing.state).add(standing.match_id.as_ref().map(<[u8; 16]>::as_slice)).add(standing.ending);
    to.add(standing.expires_ms).add(standing.forget_at_ms).add(standing.edition);
    to.add(standing.checksum(stored.ticket.id.as_bytes()));
}

fn bind_match(play: &&Arc<Match>, to: &mut Binds) {
    let row = MatchRow::of(play);
    to.add(row.id.as_slice()).add(row.silo_id).add(row.set_id).add(row.proposed_ms).add(row.edition).add(row.stage);
    to.add(row.forget_at_ms).add(&*row.body).add(row.checksum());
}

fn bind_spot((user, spot): &(UserKey, Spot), to: &mut Binds) {
    bind_queue_user(&(*user, spot.queue), to);
    to.add(spot.ticket.as_bytes().as_slice()).add(i64::from(spot.alone)).add(spot_checksum(*user, spot));
}

fn bind_player((user, play): &(UserKey, MatchId), to: &mut Binds) {
    bind_user(user, to);
    to.add(play.as_bytes().as_slice()).add(player_checksum(*user, *play));
}

fn bind_penalty((key, penalty): &((UserKey, SetId), Penalty), to: &mut Binds) {
    bind_user(&key.0, to);
    to.add(i64::from(key.1.0)).add(i64::from(penalty.rung)).add(to_ms(penalty.until)).add(to_ms(penalty.resets_at));
    to.add(penalty_checksum(*key, penalty));
}

fn bind_rating(row: &&RatingRow, to: &mut Binds) {
    bind_user(&row.user, to);
    to.add(i64::from(row.set_id.0)).add(row.rated.rating).add(row.rated.deviation).add(row.volatility);
    to.add(i64::from(row.matches)).add(to_ms(row.last)).add(i64::from(row.streak));
    let Satisfaction { abandoned, scores, score_sum } = row.satisfaction;
    to.add(i64::from(abandoned)).add(i64::from(scores)).add(i64::from(score_sum)).add(i64::from(row.played));
    to.add(rating_checksum(row));
}

fn bind_result(result: &&MatchResult, to: &mut Binds) {
    let row = ResultRow::of(result);
    to.add(row.id.as_slice()).add(row.silo_id).add(row.set_id).add(row.reported_ms).add(row.payload.as_slice());
    to.add(&*row.body).add(row.checksum());
}

fn bind_change(change: &&RatingChange, to: &mut Binds) {
    bind_user(&change.user, to);
    to.add(i64::from(change.set_id.0)).add(i64::from(slot(change.number))).add(i64::from(change.number));
    to.add(change.match_id.as_bytes().as_slice()).add(to_ms(change.at));
    to.add(i64::from(change.rank)).add(i64::from(change.sides));
    to.add(change.before.rating).add(change.before.deviation).add(change.after.rating).add(change.after.deviation);
    to.add(change_checksum(change));
}

fn bind_score((match_id, user, score, at): &(MatchId, UserKey, u8, UnixMs), to: &mut Binds) {
    to.add(match_id.as_bytes().as_slice());
    bind_user(user, to);
    to.add(i64::from(*score)).add(to_ms(*at)).add(score_checksum(*match_id, *user, *score, *at));
}

//! One batch of changes to the queues, in one transaction: read what it touches, decide in plain code, write the difference.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::domain::id::{MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry, SatisfactionStats};
use crate::domain::rating::SetActivity;
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::queues::queue_rows::{QueueRows, TicketUser};
use crate::store::queues::record_result::history_slot;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, RatingRow, StoredTicket};
use crate::store::rows::queue::{MatchRow, TicketRow, TicketStateRow};
use crate::store::rows::queue_checksums::{
    feedback_checksum, match_user_checksum, penalty_checksum, rating_change_checksum, rating_checksum,
    ticket_user_checksum,
};
use crate::store::rows::result::ResultRow;
use crate::store::rows::to_ms;
use crate::store::sqlite::queues::{decode, statements as sql};
use crate::store::sqlite::statements::{BindValues, SqlScript};
use crate::store::sqlite::to_store_error;
use crate::store::sqlite::transaction::hex_json_array;
use crate::store::sqlite::wal::WalLength;

/// Makes all changes and answers each, and says how long the log has become. On an error none has happened, and the
/// connection may be within a transaction: nothing but closing it is safe.
pub(super) async fn commit_batch(
    connection: &mut SqliteConnection,
    batch: &[QueueWrite],
) -> Result<(Vec<QueueOutcome>, WalLength), StoreError> {
    let before = begin_and_read(connection, &TouchedQueueKeys::of_batch(batch)).await?;
    let mut after = before.clone();
    let outcomes = after.apply_batch(batch);
    let script = to_script(&QueueRowChanges::between(&before, &after));
    let row = script.execute_and_commit(connection).await.map_err(to_store_error)?;
    let number = |index| row.try_get::<i64, _>(index).map_err(to_store_error);
    Ok((outcomes, WalLength { pages: number(1)?, checkpointed_pages: number(2)? }))
}

/// Begins the transaction and reads what the database says about the ids that a batch names.
async fn begin_and_read(
    connection: &mut SqliteConnection,
    touched: &TouchedQueueKeys,
) -> Result<QueueRows, StoreError> {
    let mut picture = QueueRows::default();
    sqlx::query(sql::BEGIN_IMMEDIATE).execute(&mut *connection).await.map_err(to_store_error)?;
    if !touched.tickets.is_empty() {
        let wanted = hex_json_array(touched.tickets.iter().map(TicketId::as_bytes));
        let rows =
            sqlx::query(sql::READ_TICKETS).bind(wanted).fetch_all(&mut *connection).await.map_err(to_store_error)?;
        for row in &rows {
            let stored = decode::decode_ticket(row)?;
            picture.tickets.insert(stored.ticket.id, stored);
        }
    }
    let played = hex_json_array(touched.matches.iter().map(MatchId::as_bytes));
    if !touched.matches.is_empty() {
        let rows =
            sqlx::query(sql::READ_MATCHES).bind(&played).fetch_all(&mut *connection).await.map_err(to_store_error)?;
        for row in &rows {
            let play = decode::decode_match(row)?;
            picture.matches.insert(play.id, play);
        }
    }
    if !touched.users.is_empty() || !touched.matches.is_empty() {
        let wanted = hex_json_array(touched.users.iter().map(UserKey::as_bytes));
        let query = sqlx::query(sql::READ_USER_ROWS).bind(wanted).bind(played);
        for row in &query.fetch_all(&mut *connection).await.map_err(to_store_error)? {
            decode::decode_user_row(row, &mut picture)?;
        }
    }
    read_results_and_ratings(connection, touched, &mut picture).await?;
    Ok(picture)
}

/// Reads what results and ratings there are already.
async fn read_results_and_ratings(
    connection: &mut SqliteConnection,
    touched: &TouchedQueueKeys,
    picture: &mut QueueRows,
) -> Result<(), StoreError> {
    if !touched.results.is_empty() {
        let wanted = hex_json_array(touched.results.iter().map(MatchId::as_bytes));
        for row in
            &sqlx::query(sql::READ_RESULTS).bind(wanted).fetch_all(&mut *connection).await.map_err(to_store_error)?
        {
            let result = decode::decode_result(row)?;
            picture.results.insert(result.report.match_id, result);
        }
    }
    if !touched.feedback.is_empty() {
        let matches: BTreeSet<MatchId> = touched.feedback.iter().map(|(id, _)| *id).collect();
        let wanted = hex_json_array(matches.iter().map(MatchId::as_bytes));
        for row in
            &sqlx::query(sql::READ_FEEDBACK).bind(wanted).fetch_all(&mut *connection).await.map_err(to_store_error)?
        {
            decode::decode_feedback(row, picture)?;
        }
    }
    if !touched.ratings.is_empty() {
        let users: BTreeSet<UserKey> = touched.ratings.iter().map(|(user, _)| *user).collect();
        let wanted = hex_json_array(users.iter().map(UserKey::as_bytes));
        for row in
            &sqlx::query(sql::READ_RATINGS).bind(&wanted).fetch_all(&mut *connection).await.map_err(to_store_error)?
        {
            let rating = decode::decode_rating(row)?;
            picture.ratings.insert((rating.user, rating.set_id), rating);
        }
        for set_id in &touched.period_sets {
            let query = sqlx::query(sql::READ_LATEST_PERIOD).bind(i64::from(set_id.0)).bind(&wanted);
            if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(to_store_error)? {
                let tells = decode::decode_rating(&row)?.skill();
                picture.periods_played_by_others.insert(*set_id, SetActivity::default().including_skill(&tells));
            }
        }
    }
    Ok(())
}

/// What goes goes first: a user may leave one ticket or match and be in another.
fn to_script(difference: &QueueRowChanges<'_>) -> SqlScript {
    let mut script = SqlScript::default();
    script.add_rows(&sql::DELETE_TICKET_USERS, &difference.deleted_ticket_users, bind_user_and_queue);
    script.add_rows(&sql::DELETE_MATCH_USERS, &difference.deleted_match_users, bind_user);
    script.add_rows(&sql::INSERT_TICKETS, &difference.inserted_tickets, bind_ticket);
    script.add_rows(&sql::UPDATE_TICKET_STATES, &difference.updated_tickets, bind_ticket_state);
    script.add_rows(&sql::UPSERT_MATCHES, &difference.inserted_matches, bind_match);
    script.add_rows(&sql::UPSERT_MATCHES, &difference.updated_matches, bind_match);
    script.add_rows(&sql::INSERT_TICKET_USERS, &difference.inserted_ticket_users, bind_ticket_user);
    script.add_rows(&sql::INSERT_MATCH_USERS, &difference.inserted_match_users, bind_match_user);
    script.add_rows(&sql::UPSERT_PENALTIES, &difference.inserted_penalties, bind_penalty);
    script.add_rows(&sql::UPSERT_PENALTIES, &difference.updated_penalties, bind_penalty);
    script.add_rows(&sql::UPSERT_RATINGS, &difference.inserted_ratings, bind_rating);
    script.add_rows(&sql::UPSERT_RATINGS, &difference.updated_ratings, bind_rating);
    script.add_rows(&sql::INSERT_RESULTS, &difference.inserted_results, bind_result);
    script.add_rows(&sql::UPSERT_RATING_CHANGES, &difference.upserted_rating_changes, bind_rating_change);
    script.add_rows(&sql::INSERT_FEEDBACK, &difference.inserted_feedback, bind_feedback);
    script
}

fn bind_user(user: &UserKey, to: &mut BindValues) {
    to.push(user.as_bytes().as_slice());
}

fn bind_user_and_queue((user, queue): &(UserKey, QueueKey), to: &mut BindValues) {
    bind_user(user, to);
    to.push(i64::from(queue.set_id.0)).push(queue.silo.0.cast_signed());
}

fn bind_ticket(stored: &&StoredTicket, to: &mut BindValues) {
    let row = TicketRow::encode(&stored.ticket, stored.request_digest);
    to.push(row.id.as_slice()).push(row.silo_id).push(row.set_id).push(row.entered_ms).push(row.payload.as_slice());
    to.push(&*row.body).push(row.checksum());
    bind_ticket_state_columns(stored, to);
}

fn bind_ticket_state(stored: &&StoredTicket, to: &mut BindValues) {
    to.push(stored.ticket.id.as_bytes().as_slice());
    bind_ticket_state_columns(stored, to);
}

fn bind_ticket_state_columns(stored: &StoredTicket, to: &mut BindValues) {
    let standing = TicketStateRow::encode(stored);
    to.push(standing.state).push(standing.match_id.as_ref().map(<[u8; 16]>::as_slice)).push(standing.ending);
    to.push(standing.expires_ms).push(standing.forget_at_ms).push(standing.version);
    to.push(standing.checksum(stored.ticket.id.as_bytes()));
}

fn bind_match(play: &&Arc<Match>, to: &mut BindValues) {
    let row = MatchRow::encode(play);
    to.push(row.id.as_slice())
        .push(row.silo_id)
        .push(row.set_id)
        .push(row.proposed_ms)
        .push(row.version)
        .push(row.stage);
    to.push(row.forget_at_ms).push(&*row.body).push(row.checksum());
}

fn bind_ticket_user((user, spot): &(UserKey, TicketUser), to: &mut BindValues) {
    bind_user_and_queue(&(*user, spot.queue), to);
    to.push(spot.ticket.as_bytes().as_slice()).push(i64::from(spot.exclusive)).push(ticket_user_checksum(*user, spot));
}

fn bind_match_user((user, play): &(UserKey, MatchId), to: &mut BindValues) {
    bind_user(user, to);
    to.push(play.as_bytes().as_slice()).push(match_user_checksum(*user, *play));
}

fn bind_penalty((key, penalty): &((UserKey, SetId), Penalty), to: &mut BindValues) {
    bind_user(&key.0, to);
    to.push(i64::from(key.1.0))
        .push(i64::from(penalty.level))
        .push(to_ms(penalty.cooldown_until))
        .push(to_ms(penalty.resets_at));
    to.push(penalty_checksum(*key, penalty));
}

fn bind_rating(row: &&RatingRow, to: &mut BindValues) {
    bind_user(&row.user, to);
    to.push(i64::from(row.set_id.0)).push(row.rating.rating).push(row.rating.deviation).push(row.volatility);
    to.push(i64::from(row.match_count)).push(to_ms(row.last_match_at)).push(i64::from(row.streak));
    let SatisfactionStats { abandoned_matches: abandoned, feedback_count: scores, feedback_sum: score_sum } =
        row.satisfaction;
    to.push(i64::from(abandoned))
        .push(i64::from(scores))
        .push(i64::from(score_sum))
        .push(i64::from(row.periods_played));
    to.push(rating_checksum(row));
}

fn bind_result(result: &&MatchResult, to: &mut BindValues) {
    let row = ResultRow::encode(result);
    to.push(row.id.as_slice()).push(row.silo_id).push(row.set_id).push(row.reported_ms).push(row.payload.as_slice());
    to.push(&*row.body).push(row.checksum());
}

fn bind_rating_change(change: &&RatingHistoryEntry, to: &mut BindValues) {
    bind_user(&change.user, to);
    to.push(i64::from(change.set_id.0))
        .push(i64::from(history_slot(change.rated_match_number)))
        .push(i64::from(change.rated_match_number));
    to.push(change.match_id.as_bytes().as_slice()).push(to_ms(change.reported_at));
    to.push(i64::from(change.rank)).push(i64::from(change.side_count));
    to.push(change.before.rating).push(change.before.deviation).push(change.after.rating).push(change.after.deviation);
    to.push(rating_change_checksum(change));
}

fn bind_feedback((match_id, user, score, at): &(MatchId, UserKey, u8, UnixMs), to: &mut BindValues) {
    to.push(match_id.as_bytes().as_slice());
    bind_user(user, to);
    to.push(i64::from(*score)).push(to_ms(*at)).push(feedback_checksum(*match_id, *user, *score, *at));
}

//! Transaction of a queue batch: read the touched rows, apply the writes in code, store the difference.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Either, Executor as _};
use tokio_stream::StreamExt as _;

use crate::domain::id::{ConsentId, MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::MatchResult;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::queues::consents::StoredConsent;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::result_encoding::ResultRow;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::row_checksums::{
    block_list_checksum, consent_checksum, feedback_checksum, match_user_checksum, penalty_checksum,
    ticket_user_checksum,
};
use crate::store::queues::ticket_match_encoding::{MatchRow, TicketConstantColumns, TicketStateColumns};
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, StoredBlockList, StoredTicket, TicketMembership};
use crate::store::rows::to_ms;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::hex_json_array::hex_json_array;
use crate::store::sqlite::connection::sql_script::{BindValues, SqlScript};
use crate::store::sqlite::connection::wal::WalLength;
use crate::store::sqlite::connection::write_batch::{BatchableWrite, decode_wal_length};
use crate::store::sqlite::queues::{decode, erasure_statements as erasure, ratings, statements as sql};
use crate::store::unknown_rows::UnknownRows;

impl BatchableWrite for QueueWrite {
    type Output = QueueOutcome;

    async fn commit_batch(
        connection: &mut SqliteConnection,
        batch: &[Self],
        unknown_rows: &UnknownRows,
    ) -> Result<(Vec<Self::Output>, WalLength), StoreError> {
        let before = begin_and_read(connection, &TouchedQueueKeys::of_batch(batch), unknown_rows).await?;
        let mut after = before.clone();
        let outcomes = after.apply_batch(batch);
        let script = to_script(&QueueRowChanges::between(&before, &after));
        let row = script.execute_and_commit(connection).await.map_err(to_store_error)?;
        Ok((outcomes, decode_wal_length(&row)?))
    }
}

/// Begins the transaction and reads the rows with the ids of a batch.
async fn begin_and_read(
    connection: &mut SqliteConnection,
    keys: &TouchedQueueKeys,
    unknown_rows: &UnknownRows,
) -> Result<QueueRows, StoreError> {
    let feedback_matches: BTreeSet<MatchId> = keys.feedback.iter().map(|(id, _)| *id).collect();
    let query = sqlx::query(sql::BEGIN_WRITE_AND_READ_QUEUE_ROWS)
        .bind(hex_json_array(keys.tickets.iter().map(TicketId::as_bytes)))
        .bind(hex_json_array(keys.matches.iter().map(MatchId::as_bytes)))
        .bind(hex_json_array(keys.users.iter().map(UserKey::as_bytes)))
        .bind(hex_json_array(keys.consents.iter().map(ConsentId::as_bytes)))
        .bind(hex_json_array(keys.block_lists.iter().map(UserKey::as_bytes)))
        .bind(hex_json_array(keys.results.iter().map(MatchId::as_bytes)))
        .bind(hex_json_array(feedback_matches.iter().map(MatchId::as_bytes)));
    let [tickets, matches, users, consents, block_lists, results, feedback] =
        fetch_rows_of_statements(connection, query).await.map_err(to_store_error)?;
    let mut queue_rows = QueueRows::default();
    for row in &tickets {
        let stored = unknown_rows.record_if_unknown(decode::ticket_key(row)?, decode::decode_ticket(row))?;
        queue_rows.tickets.insert(stored.ticket.id, stored);
    }
    for row in &matches {
        let found = unknown_rows.record_if_unknown(decode::match_key(row)?, decode::decode_match(row))?;
        queue_rows.matches.insert(found.id, found);
    }
    for row in &users {
        decode::decode_ticket_match_or_penalty_into(row, &mut queue_rows)?;
    }
    for row in &consents {
        queue_rows.consents.extend([decode::decode_consent(row)?]);
    }
    for row in &block_lists {
        let list = decode::decode_block_list(row)?;
        queue_rows.block_lists.insert(list.user, list);
    }
    for row in &results {
        let result = unknown_rows.record_if_unknown(decode::result_key(row)?, decode::decode_result(row))?;
        queue_rows.results.insert(result.report.match_id, result);
    }
    for row in &feedback {
        decode::decode_feedback_into(row, &mut queue_rows)?;
    }
    if !keys.ratings.is_empty() || !keys.erased_users.is_empty() {
        ratings::read_touched(connection, keys, &mut queue_rows).await?;
    }
    Ok(queue_rows)
}

/// Executes [`sql::BEGIN_WRITE_AND_READ_QUEUE_ROWS`] and returns the rows of each statement after `begin`.
async fn fetch_rows_of_statements(
    connection: &mut SqliteConnection,
    query: sqlx::query::Query<'_, sqlx::Sqlite, SqliteArguments>,
) -> Result<[Vec<SqliteRow>; sql::READ_STATEMENT_COUNT], sqlx::Error> {
    let mut rows = std::array::from_fn(|_| Vec::new());
    let mut ended_statements = 0;
    let mut results = connection.fetch_many(query);
    while let Some(result) = results.next().await {
        match result? {
            Either::Left(_) => ended_statements += 1,
            Either::Right(row) => rows[ended_statements - 1].push(row),
        }
    }
    Ok(rows)
}

/// Deletes run first: a user can leave one ticket or match and join another in one batch.
fn to_script(changes: &QueueRowChanges<'_>) -> SqlScript {
    let mut script = SqlScript::default();
    script.add_rows(&sql::DELETE_TICKET_USERS, &changes.deleted_ticket_users, bind_ticket_user_primary_key);
    script.add_rows(&sql::DELETE_MATCH_USERS_BY_USER, &changes.deleted_match_users, bind_user);
    script.add_rows(&sql::INSERT_TICKETS, &changes.inserted_tickets, bind_ticket);
    script.add_rows(&sql::UPDATE_TICKET_STATES, &changes.updated_tickets, bind_ticket_state);
    script.add_rows(&erasure::REWRITE_TICKETS, &changes.rewritten_tickets, bind_ticket);
    script.add_rows(&sql::UPSERT_MATCHES, &changes.inserted_matches, bind_match);
    script.add_rows(&sql::UPSERT_MATCHES, &changes.updated_matches, bind_match);
    script.add_rows(&sql::INSERT_TICKET_USERS, &changes.inserted_ticket_users, bind_ticket_user);
    script.add_rows(&sql::INSERT_MATCH_USERS, &changes.inserted_match_users, bind_match_user);
    script.add_rows(&sql::UPSERT_PENALTIES, &changes.inserted_penalties, bind_penalty);
    script.add_rows(&sql::UPSERT_PENALTIES, &changes.updated_penalties, bind_penalty);
    script.add_rows(&sql::UPSERT_CONSENTS, &changes.inserted_consents, bind_consent);
    script.add_rows(&sql::UPSERT_CONSENTS, &changes.updated_consents, bind_consent);
    script.add_rows(&sql::UPSERT_BLOCK_LISTS, &changes.inserted_block_lists, bind_block_list);
    script.add_rows(&sql::UPSERT_BLOCK_LISTS, &changes.updated_block_lists, bind_block_list);
    ratings::add_ratings_to_script(&mut script, changes);
    script.add_rows(&sql::INSERT_RESULTS, &changes.inserted_results, bind_result);
    script.add_rows(&erasure::REWRITE_RESULTS, &changes.updated_results, bind_result);
    script.add_rows(&erasure::DELETE_FEEDBACK_BY_MATCH_AND_USER, &changes.deleted_feedback, bind_feedback_key);
    script.add_rows(&sql::INSERT_FEEDBACK, &changes.inserted_feedback, bind_feedback);
    for statement in &erasure::DELETE_USER_ROWS {
        script.add_rows(statement, &changes.erased_users, bind_user);
    }
    script
}

fn bind_user(user: &UserKey, values: &mut BindValues) {
    values.push(user.as_bytes().as_slice());
}

fn bind_feedback_key((match_id, user): &(MatchId, UserKey), values: &mut BindValues) {
    values.push(match_id.as_bytes().as_slice());
    bind_user(user, values);
}

fn bind_ticket_user_primary_key((user, queue, ticket_id): &(UserKey, QueueKey, TicketId), values: &mut BindValues) {
    bind_user(user, values);
    values.push(i64::from(queue.set_id.0)).push(queue.silo.0.cast_signed()).push(ticket_id.as_bytes().as_slice());
}

fn bind_ticket(stored: &&StoredTicket, values: &mut BindValues) {
    let row = TicketConstantColumns::encode(&stored.ticket, stored.request_digest);
    values
        .push(row.id.as_slice())
        .push(row.silo_id)
        .push(row.set_id)
        .push(row.entered_ms)
        .push(row.request_digest.as_slice());
    values.push(&*row.body).push(row.checksum());
    bind_ticket_state_columns(stored, values);
}

fn bind_ticket_state(stored: &&StoredTicket, values: &mut BindValues) {
    values.push(stored.ticket.id.as_bytes().as_slice());
    bind_ticket_state_columns(stored, values);
}

fn bind_ticket_state_columns(stored: &StoredTicket, values: &mut BindValues) {
    let state_row = TicketStateColumns::encode(stored);
    values.push(state_row.state).push(state_row.match_id.as_ref().map(<[u8; 16]>::as_slice)).push(state_row.end_reason);
    values.push(state_row.expires_ms).push(state_row.purge_at_ms).push(state_row.version);
    values.push(state_row.checksum(stored.ticket.id.as_bytes())).push(state_row.acknowledged);
    values.push(state_row.seat_vectors);
}

fn bind_match(found: &&Arc<Match>, values: &mut BindValues) {
    let row = MatchRow::encode(found);
    values
        .push(row.id.as_slice())
        .push(row.silo_id)
        .push(row.set_id)
        .push(row.proposed_ms)
        .push(row.version)
        .push(row.stage);
    values.push(row.purge_at_ms).push(&*row.body).push(row.checksum());
}

fn bind_ticket_user((user, membership): &(UserKey, TicketMembership), values: &mut BindValues) {
    bind_user(user, values);
    values.push(i64::from(membership.queue.set_id.0)).push(membership.queue.silo.0.cast_signed());
    values.push(membership.ticket_id.as_bytes().as_slice()).push(i64::from(membership.exclusive));
    values.push(ticket_user_checksum(*user, membership));
}

fn bind_match_user((user, match_id): &(UserKey, MatchId), values: &mut BindValues) {
    bind_user(user, values);
    values.push(match_id.as_bytes().as_slice()).push(match_user_checksum(*user, *match_id));
}

fn bind_penalty((key, penalty): &((UserKey, SetId), Penalty), values: &mut BindValues) {
    let (user, set_id) = key;
    bind_user(user, values);
    values
        .push(i64::from(set_id.0))
        .push(i64::from(penalty.level))
        .push(to_ms(penalty.cooldown_until))
        .push(to_ms(penalty.resets_at));
    values.push(penalty_checksum(*key, penalty));
}

fn bind_consent((id, consent): &(ConsentId, StoredConsent), values: &mut BindValues) {
    values.push(id.as_bytes().as_slice()).push(consent.consumer.as_ref().map(|taker| taker.0.as_slice()));
    values.push(i64::from(consent.is_revoked)).push(to_ms(consent.expires_at)).push(consent_checksum(*id, consent));
}

fn bind_block_list(list: &&StoredBlockList, values: &mut BindValues) {
    bind_user(&list.user, values);
    values.push(list.encode_blocked()).push(list.version.cast_signed()).push(block_list_checksum(list));
}

fn bind_result(result: &&MatchResult, values: &mut BindValues) {
    let row = ResultRow::encode(result);
    values
        .push(row.id.as_slice())
        .push(row.silo_id)
        .push(row.set_id)
        .push(row.reported_ms)
        .push(row.request_digest.as_slice());
    values.push(&*row.body).push(row.checksum());
}

fn bind_feedback((match_id, user, stars, given_at): &(MatchId, UserKey, u8, UnixMs), values: &mut BindValues) {
    values.push(match_id.as_bytes().as_slice());
    bind_user(user, values);
    values.push(i64::from(*stars)).push(to_ms(*given_at)).push(feedback_checksum(*match_id, *user, *stars, *given_at));
}

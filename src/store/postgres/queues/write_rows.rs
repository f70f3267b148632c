//! Statements that write the row changes of a queue batch, one per kind of row.

use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{ConsentId, MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::MatchResult;
use crate::domain::time::UnixMs;
use crate::store::postgres::connection::commit::{CommitError, check_row_count};
use crate::store::postgres::connection::uuid_column::to_uuids;
use crate::store::postgres::queues::array_column::to_column;
use crate::store::postgres::queues::{erasure_statements as erasure, ratings, statements as sql};
use crate::store::queues::TicketMembership;
use crate::store::queues::consents::StoredConsent;
use crate::store::queues::result_encoding::ResultRow;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::ticket_match_encoding::{MatchRow, TicketConstantColumns, TicketStateColumns};
use crate::store::queues::{QueueKey, StoredBlockList, StoredTicket};
use crate::store::rows::to_ms;

/// Deletes run first: a user can leave one ticket or match and join another in one batch.
pub(super) async fn write_changes(
    changes: &QueueRowChanges<'_>,
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    delete_ticket_and_match_users(&changes.deleted_ticket_users, &changes.deleted_match_users, connection).await?;
    insert_tickets(&changes.inserted_tickets, connection).await?;
    update_ticket_states(&changes.updated_tickets, connection).await?;
    rewrite_tickets(&changes.rewritten_tickets, connection).await?;
    let inserted =
        write_matches(sql::INSERT_MATCHES, changes.inserted_matches.iter().map(|found| &***found), connection).await?;
    check_row_count(inserted, changes.inserted_matches.len())?;
    write_matches(sql::UPDATE_MATCHES, changes.updated_matches.iter().map(|found| &***found), connection).await?;
    insert_ticket_users(&changes.inserted_ticket_users, connection).await?;
    insert_match_users(&changes.inserted_match_users, connection).await?;
    let inserted = write_penalties(sql::INSERT_PENALTIES, &changes.inserted_penalties, connection).await?;
    check_row_count(inserted, changes.inserted_penalties.len())?;
    write_penalties(sql::UPDATE_PENALTIES, &changes.updated_penalties, connection).await?;
    let inserted = write_consents(sql::INSERT_CONSENTS, &changes.inserted_consents, connection).await?;
    check_row_count(inserted, changes.inserted_consents.len())?;
    write_consents(sql::UPDATE_CONSENTS, &changes.updated_consents, connection).await?;
    let inserted = write_block_lists(sql::INSERT_BLOCK_LISTS, &changes.inserted_block_lists, connection).await?;
    check_row_count(inserted, changes.inserted_block_lists.len())?;
    write_block_lists(sql::UPDATE_BLOCK_LIST_ROWS, &changes.updated_block_lists, connection).await?;
    ratings::write_ratings(changes, connection).await?;
    insert_results(&changes.inserted_results, connection).await?;
    ratings::write_history(changes, connection).await?;
    ratings::delete_ratings(&changes.deleted_ratings, connection).await?;
    rewrite_results(&changes.updated_results, connection).await?;
    delete_feedback(&changes.deleted_feedback, connection).await?;
    insert_feedback(&changes.inserted_feedback, connection).await?;
    delete_user_rows(&changes.erased_users, connection).await
}

async fn rewrite_tickets(tickets: &[&StoredTicket], connection: &mut PgConnection) -> Result<(), CommitError> {
    if tickets.is_empty() {
        return Ok(());
    }
    let rows: Vec<TicketConstantColumns<'_>> =
        tickets.iter().map(|stored| TicketConstantColumns::encode(&stored.ticket, stored.request_digest)).collect();
    let query = sqlx::query(erasure::REWRITE_TICKETS)
        .bind(to_uuids(rows.iter().map(|row| &row.id)))
        .bind(to_uuids(rows.iter().map(|row| &row.request_digest)))
        .bind(to_column(&rows, |row| &*row.body))
        .bind(to_column(tickets, |stored| stored.version.cast_signed()));
    query.execute(connection).await?;
    Ok(())
}

async fn rewrite_results(results: &[&MatchResult], connection: &mut PgConnection) -> Result<(), CommitError> {
    if results.is_empty() {
        return Ok(());
    }
    let rows: Vec<ResultRow<'_>> = results.iter().map(|result| ResultRow::encode(result)).collect();
    let query = sqlx::query(erasure::REWRITE_RESULTS)
        .bind(to_uuids(rows.iter().map(|row| &row.id)))
        .bind(to_uuids(rows.iter().map(|row| &row.request_digest)))
        .bind(to_column(&rows, |row| &*row.body));
    query.execute(connection).await?;
    Ok(())
}

async fn delete_feedback(feedback: &[(MatchId, UserKey)], connection: &mut PgConnection) -> Result<(), CommitError> {
    if feedback.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(erasure::DELETE_FEEDBACK_BY_MATCH_AND_USER)
        .bind(to_uuids(feedback.iter().map(|(id, _)| id.as_bytes())))
        .bind(to_uuids(feedback.iter().map(|(_, user)| user.as_bytes())));
    query.execute(connection).await?;
    Ok(())
}

async fn delete_user_rows(users: &[UserKey], connection: &mut PgConnection) -> Result<(), CommitError> {
    for statement in erasure::DELETE_USER_ROWS.into_iter().filter(|_| !users.is_empty()) {
        let users = to_uuids(users.iter().map(UserKey::as_bytes));
        sqlx::query(statement).bind(users).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn delete_ticket_and_match_users(
    ticket_users: &[(UserKey, QueueKey, TicketId)],
    match_users: &[UserKey],
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    if !ticket_users.is_empty() {
        let query = sqlx::query(sql::DELETE_TICKET_USERS)
            .bind(to_uuids(ticket_users.iter().map(|(user, ..)| user.as_bytes())))
            .bind(to_column(ticket_users, |(_, queue, _)| i64::from(queue.set_id.0)))
            .bind(to_column(ticket_users, |(_, queue, _)| queue.silo.0.cast_signed()))
            .bind(to_uuids(ticket_users.iter().map(|(.., ticket_id)| ticket_id.as_bytes())));
        query.execute(&mut *connection).await?;
    }
    if !match_users.is_empty() {
        let users = to_uuids(match_users.iter().map(UserKey::as_bytes));
        sqlx::query(sql::DELETE_MATCH_USERS_BY_USER).bind(users).execute(connection).await?;
    }
    Ok(())
}

/// Value of a 16-bit column; larger values do not occur.
fn to_i16_saturating(number: i64) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

async fn insert_tickets(tickets: &[&StoredTicket], connection: &mut PgConnection) -> Result<(), CommitError> {
    if tickets.is_empty() {
        return Ok(());
    }
    let rows: Vec<TicketConstantColumns<'_>> =
        tickets.iter().map(|stored| TicketConstantColumns::encode(&stored.ticket, stored.request_digest)).collect();
    let state_rows: Vec<TicketStateColumns> = tickets.iter().map(|stored| TicketStateColumns::encode(stored)).collect();
    let query = sqlx::query(sql::INSERT_TICKETS)
        .bind(to_uuids(rows.iter().map(|row| &row.id)))
        .bind(to_column(&rows, |row| row.silo_id))
        .bind(to_column(&rows, |row| row.set_id))
        .bind(to_column(&rows, |row| row.entered_ms))
        .bind(to_uuids(rows.iter().map(|row| &row.request_digest)))
        .bind(to_column(&rows, |row| &*row.body))
        .bind(to_column(&state_rows, |row| to_i16_saturating(row.state)))
        .bind(to_column(&state_rows, |row| row.match_id.map(Uuid::from_bytes)))
        .bind(to_column(&state_rows, |row| row.end_reason.map(to_i16_saturating)))
        .bind(to_column(&state_rows, |row| row.expires_ms))
        .bind(to_column(&state_rows, |row| row.purge_at_ms))
        .bind(to_column(&state_rows, |row| row.version))
        .bind(to_column(&state_rows, |row| row.acknowledged))
        .bind(to_column(&state_rows, |row| row.seat_vectors.as_deref()));
    check_row_count(query.execute(connection).await?.rows_affected(), rows.len())
}

async fn update_ticket_states(tickets: &[&StoredTicket], connection: &mut PgConnection) -> Result<(), CommitError> {
    if tickets.is_empty() {
        return Ok(());
    }
    let state_rows: Vec<TicketStateColumns> = tickets.iter().map(|stored| TicketStateColumns::encode(stored)).collect();
    let query = sqlx::query(sql::UPDATE_TICKET_STATES)
        .bind(to_uuids(tickets.iter().map(|stored| stored.ticket.id.as_bytes())))
        .bind(to_column(&state_rows, |row| to_i16_saturating(row.state)))
        .bind(to_column(&state_rows, |row| row.match_id.map(Uuid::from_bytes)))
        .bind(to_column(&state_rows, |row| row.end_reason.map(to_i16_saturating)))
        .bind(to_column(&state_rows, |row| row.expires_ms))
        .bind(to_column(&state_rows, |row| row.purge_at_ms))
        .bind(to_column(&state_rows, |row| row.version))
        .bind(to_column(&state_rows, |row| row.acknowledged))
        .bind(to_column(&state_rows, |row| row.seat_vectors.as_deref()));
    query.execute(connection).await?;
    Ok(())
}

async fn write_matches(
    statement: &'static str,
    matches: impl Iterator<Item = &Match> + Send,
    connection: &mut PgConnection,
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
        .bind(to_column(&rows, |row| to_i16_saturating(row.stage)))
        .bind(to_column(&rows, |row| row.purge_at_ms))
        .bind(to_column(&rows, |row| &*row.body));
    Ok(query.execute(connection).await?.rows_affected())
}

async fn insert_ticket_users(
    ticket_users: &[(UserKey, TicketMembership)],
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    if ticket_users.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::INSERT_TICKET_USERS)
        .bind(to_uuids(ticket_users.iter().map(|(user, _)| user.as_bytes())))
        .bind(to_column(ticket_users, |(_, membership)| i64::from(membership.queue.set_id.0)))
        .bind(to_column(ticket_users, |(_, membership)| membership.queue.silo.0.cast_signed()))
        .bind(to_uuids(ticket_users.iter().map(|(_, membership)| membership.ticket_id.as_bytes())))
        .bind(to_column(ticket_users, |(_, membership)| membership.exclusive));
    check_row_count(query.execute(connection).await?.rows_affected(), ticket_users.len())
}

async fn insert_match_users(
    match_users: &[(UserKey, MatchId)],
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    if match_users.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::INSERT_MATCH_USERS)
        .bind(to_uuids(match_users.iter().map(|(user, _)| user.as_bytes())))
        .bind(to_uuids(match_users.iter().map(|(_, match_id)| match_id.as_bytes())));
    check_row_count(query.execute(connection).await?.rows_affected(), match_users.len())
}

async fn write_penalties(
    statement: &'static str,
    penalties: &[((UserKey, SetId), Penalty)],
    connection: &mut PgConnection,
) -> Result<u64, CommitError> {
    if penalties.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(penalties.iter().map(|((user, _), _)| user.as_bytes())))
        .bind(to_column(penalties, |((_, set_id), _)| i64::from(set_id.0)))
        .bind(to_column(penalties, |(_, penalty)| i64::from(penalty.level)))
        .bind(to_column(penalties, |(_, penalty)| to_ms(penalty.cooldown_until)))
        .bind(to_column(penalties, |(_, penalty)| to_ms(penalty.resets_at)));
    Ok(query.execute(connection).await?.rows_affected())
}

async fn write_consents(
    statement: &'static str,
    consents: &[(ConsentId, StoredConsent)],
    connection: &mut PgConnection,
) -> Result<u64, CommitError> {
    if consents.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(consents.iter().map(|(id, _)| id.as_bytes())))
        .bind(to_column(consents, |(_, consent)| consent.consumer.map(|taker| Uuid::from_bytes(taker.0))))
        .bind(to_column(consents, |(_, consent)| consent.is_revoked))
        .bind(to_column(consents, |(_, consent)| to_ms(consent.expires_at)));
    Ok(query.execute(connection).await?.rows_affected())
}

async fn write_block_lists(
    statement: &'static str,
    lists: &[&StoredBlockList],
    connection: &mut PgConnection,
) -> Result<u64, CommitError> {
    if lists.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(lists.iter().map(|list| list.user.as_bytes())))
        .bind(to_column(lists, |list| list.encode_blocked()))
        .bind(to_column(lists, |list| list.version.cast_signed()));
    Ok(query.execute(connection).await?.rows_affected())
}

async fn insert_results(results: &[&MatchResult], connection: &mut PgConnection) -> Result<(), CommitError> {
    if results.is_empty() {
        return Ok(());
    }
    let rows: Vec<ResultRow<'_>> = results.iter().map(|result| ResultRow::encode(result)).collect();
    let query = sqlx::query(sql::INSERT_RESULTS)
        .bind(to_uuids(rows.iter().map(|row| &row.id)))
        .bind(to_column(&rows, |row| row.silo_id))
        .bind(to_column(&rows, |row| row.set_id))
        .bind(to_column(&rows, |row| row.reported_ms))
        .bind(to_uuids(rows.iter().map(|row| &row.request_digest)))
        .bind(to_column(&rows, |row| &*row.body));
    check_row_count(query.execute(connection).await?.rows_affected(), rows.len())
}

async fn insert_feedback(
    feedback: &[(MatchId, UserKey, u8, UnixMs)],
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    if feedback.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::INSERT_FEEDBACK)
        .bind(to_uuids(feedback.iter().map(|(id, ..)| id.as_bytes())))
        .bind(to_uuids(feedback.iter().map(|(_, user, ..)| user.as_bytes())))
        .bind(to_column(feedback, |(_, _, stars, _)| i16::from(*stars)))
        .bind(to_column(feedback, |(.., given_at)| to_ms(*given_at)));
    check_row_count(query.execute(connection).await?.rows_affected(), feedback.len())
}

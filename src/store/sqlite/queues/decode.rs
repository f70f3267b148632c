//! Decoding of queue rows; verifies their checksums.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::sqlite::SqliteRow;

use crate::domain::id::{ConsentId, MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry, UserSatisfactionStatistics};
use crate::domain::queue::ticket::PlayerRating;
use crate::store::column_reader::ColumnReader;
use crate::store::error::StoreError;
use crate::store::queues::consents::StoredConsent;
use crate::store::queues::first_scale::{FirstRatingScaleOfSet, defaults_version_from_number};
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::result_encoding::ResultRow;
use crate::store::queues::row_checksums::{
    block_list_checksum, consent_checksum, feedback_checksum, first_rating_scale_checksum, match_user_checksum,
    penalty_checksum, rating_change_checksum, rating_checksum, ticket_user_checksum,
};
use crate::store::queues::ticket_match_encoding::{MatchRow, TicketConstantColumns, TicketStateColumns};
use crate::store::queues::{
    ConsentConsumer, FinishedMatch, QueueKey, RatingRow, StoredBlockList, StoredTicket, TicketMembership,
};
use crate::store::rows::from_ms;
use crate::store::unknown_rows::RowKey;

/// Key of a row of `statements::READ_TICKETS`.
pub(super) fn ticket_key(row: &SqliteRow) -> Result<RowKey, StoreError> {
    let id = ColumnReader { table: "ticket", row }.id_bytes(0, "ticket_id")?;
    Ok(RowKey::Ticket(TicketId::from_bytes(id)))
}

/// Key of a row of `statements::READ_MATCHES`.
pub(super) fn match_key(row: &SqliteRow) -> Result<RowKey, StoreError> {
    let id = ColumnReader { table: "match", row }.id_bytes(0, "match_id")?;
    Ok(RowKey::Match(MatchId::from_bytes(id)))
}

/// Key of a row of `statements::READ_RESULTS`.
pub(super) fn result_key(row: &SqliteRow) -> Result<RowKey, StoreError> {
    let id = ColumnReader { table: "result", row }.id_bytes(0, "match_id")?;
    Ok(RowKey::Result(MatchId::from_bytes(id)))
}

/// Decodes a row of `statements::READ_TICKETS`.
pub(super) fn decode_ticket(row: &SqliteRow) -> Result<StoredTicket, StoreError> {
    let columns = ColumnReader { table: "ticket", row };
    let ticket = TicketConstantColumns {
        id: columns.id_bytes(0, "ticket_id")?,
        silo_id: columns.int64(1, "silo_id")?,
        set_id: columns.int64(2, "set_id")?,
        entered_ms: columns.int64(3, "entered_ms")?,
        request_digest: columns.id_bytes(4, "request_digest")?,
        body: Cow::Borrowed(columns.read(5, "body")?),
    };
    columns.verify_checksum("checksum", columns.int64(6, "checksum")?, ticket.checksum())?;
    let state_row = TicketStateColumns {
        state: columns.int64(7, "state")?,
        match_id: columns.optional_id(8, "match_id")?,
        end_reason: columns.read(9, "end_reason")?,
        expires_ms: columns.int64(10, "expires_ms")?,
        purge_at_ms: columns.read(11, "purge_at_ms")?,
        version: columns.int64(12, "version")?,
        acknowledged: columns.int64(14, "acknowledged")?,
        seat_vectors: columns.read(15, "seat_vectors")?,
    };
    columns.verify_checksum("state_checksum", columns.int64(13, "state_checksum")?, state_row.checksum(&ticket.id))?;
    ticket.decode(state_row)
}

/// Decodes a row of `statements::READ_MATCHES`.
pub(super) fn decode_match(row: &SqliteRow) -> Result<Arc<Match>, StoreError> {
    let columns = ColumnReader { table: "match", row };
    let match_row = MatchRow {
        id: columns.id_bytes(0, "match_id")?,
        silo_id: columns.int64(1, "silo_id")?,
        set_id: columns.int64(2, "set_id")?,
        proposed_ms: columns.int64(3, "proposed_ms")?,
        version: columns.int64(4, "version")?,
        stage: columns.int64(5, "stage")?,
        purge_at_ms: columns.read(6, "purge_at_ms")?,
        body: Cow::Borrowed(columns.read(7, "body")?),
    };
    columns.verify_checksum("checksum", columns.int64(8, "checksum")?, match_row.checksum())?;
    match_row.decode()
}

/// Decodes a row of the consents in `statements::BEGIN_WRITE_AND_READ_QUEUE_ROWS`.
pub(super) fn decode_consent(row: &SqliteRow) -> Result<(ConsentId, StoredConsent), StoreError> {
    let columns = ColumnReader { table: "consent", row };
    let id = ConsentId::from_bytes(columns.id_bytes(0, "consent_id")?);
    let consent = StoredConsent {
        consumer: columns.optional_id(1, "taken_by")?.map(ConsentConsumer),
        is_revoked: columns.int64(2, "is_revoked")? == 1,
        expires_at: from_ms(columns.int64(3, "expires_ms")?),
    };
    columns.verify_checksum("checksum", columns.int64(4, "checksum")?, consent_checksum(id, &consent))?;
    Ok((id, consent))
}

/// Decodes a row of the block lists in `statements::BEGIN_WRITE_AND_READ_QUEUE_ROWS`.
pub(super) fn decode_block_list(row: &SqliteRow) -> Result<StoredBlockList, StoreError> {
    let columns = ColumnReader { table: "block_list", row };
    let blocked = StoredBlockList::decode_blocked(columns.read(1, "blocked")?);
    let list = StoredBlockList {
        user: UserKey::from_bytes(columns.id_bytes(0, "user_key")?),
        blocked: blocked.ok_or_else(|| columns.corrupt_row("blocked", "is not a sorted list of keys".into()))?,
        version: columns.int64(2, "version")?.cast_unsigned(),
    };
    columns.verify_checksum("checksum", columns.int64(3, "checksum")?, block_list_checksum(&list))?;
    Ok(list)
}

/// Decodes a row of `statements::READ_TICKETS_MATCHES_PENALTIES_OF_USERS` into `rows`.
pub(super) fn decode_ticket_match_or_penalty_into(row: &SqliteRow, rows: &mut QueueRows) -> Result<(), StoreError> {
    let kind: i64 = ColumnReader { table: "ticket_user", row }.int64(0, "kind")?;
    match kind {
        0 => {
            let columns = ColumnReader { table: "ticket_user", row };
            let user = UserKey::from_bytes(columns.id_bytes(1, "user_key")?);
            let ticket_id = TicketId::from_bytes(columns.id_bytes(2, "ticket_id")?);
            let queue = QueueKey {
                set_id: SetId(columns.uint32(3, "set_id")?),
                silo: SiloId(columns.int64(4, "silo_id")?.cast_unsigned()),
            };
            let membership = TicketMembership { queue, ticket_id, exclusive: columns.int64(5, "exclusive")? == 1 };
            columns.verify_checksum(
                "checksum",
                columns.int64(7, "checksum")?,
                ticket_user_checksum(user, &membership),
            )?;
            rows.add_ticket_user(user, membership);
        }
        1 => {
            let columns = ColumnReader { table: "match_user", row };
            let user = UserKey::from_bytes(columns.id_bytes(1, "user_key")?);
            let match_id = MatchId::from_bytes(columns.id_bytes(2, "match_id")?);
            columns.verify_checksum("checksum", columns.int64(7, "checksum")?, match_user_checksum(user, match_id))?;
            rows.add_match_user(user, match_id);
        }
        _ => {
            let columns = ColumnReader { table: "penalty", row };
            let key = (UserKey::from_bytes(columns.id_bytes(1, "user_key")?), SetId(columns.uint32(3, "set_id")?));
            let penalty = Penalty {
                level: columns.uint32(4, "level")?,
                cooldown_until: from_ms(columns.int64(5, "cooldown_until_ms")?),
                resets_at: from_ms(columns.int64(6, "resets_at_ms")?),
            };
            columns.verify_checksum("checksum", columns.int64(7, "checksum")?, penalty_checksum(key, &penalty))?;
            rows.penalties.insert(key, penalty);
        }
    }
    Ok(())
}

/// Decodes a row of `rating_statements::READ_RATINGS` or `READ_POOL_AND_SCALE_RATINGS`.
pub(super) fn decode_rating(row: &SqliteRow) -> Result<RatingRow, StoreError> {
    let key = ColumnReader { table: "rating", row }.rating_key(1)?;
    let table = if key.is_pool_and_scale_digest() { "keyed_rating" } else { "rating" };
    let columns = ColumnReader { table, row };
    let decoded = RatingRow {
        user: UserKey::from_bytes(columns.id_bytes(0, "user_key")?),
        key,
        rating: PlayerRating { rating: columns.read(2, "rating")?, deviation: columns.read(3, "deviation")? },
        volatility: columns.read(4, "volatility")?,
        rated_match_count: columns.uint32(5, "match_count")?,
        last_match_at: from_ms(columns.int64(6, "last_match_ms")?),
        streak: columns.read(8, "streak")?,
        satisfaction: UserSatisfactionStatistics {
            abandoned_matches: columns.uint32(9, "abandoned_matches")?,
            disputed_matches: columns.uint32(13, "disputed_matches")?,
            given_feedback_count: columns.uint32(10, "feedback_count")?,
            given_feedback_sum: columns.uint32(11, "feedback_sum")?,
        },
        last_match_active_period: columns.uint32(12, "active_periods")?,
    };
    columns.verify_checksum("checksum", columns.int64(7, "checksum")?, rating_checksum(&decoded))?;
    Ok(decoded)
}

/// Decodes a row of `statements::READ_RESULTS`.
pub(super) fn decode_result(row: &SqliteRow) -> Result<Arc<MatchResult>, StoreError> {
    let columns = ColumnReader { table: "result", row };
    let result = ResultRow {
        id: columns.id_bytes(0, "match_id")?,
        silo_id: columns.int64(1, "silo_id")?,
        set_id: columns.int64(2, "set_id")?,
        reported_ms: columns.int64(3, "reported_ms")?,
        request_digest: columns.id_bytes(4, "request_digest")?,
        body: Cow::Borrowed(columns.read(5, "body")?),
    };
    columns.verify_checksum("checksum", columns.int64(6, "checksum")?, result.checksum())?;
    result.decode()
}

/// Decodes a row of `statements::LIST_FINISHED_MATCHES`.
pub(super) fn decode_finished_match(row: &SqliteRow) -> Result<FinishedMatch, StoreError> {
    let columns = ColumnReader { table: "feedback", row };
    Ok(FinishedMatch {
        result: decode_result(row)?,
        feedback_count: columns.uint32(7, "stars")?,
        feedback_sum: columns.uint32(8, "stars")?,
    })
}

/// Decodes a row of `rating_statements::READ_RATING_CHANGES_ON_FIRST_SCALE` or `READ_POOL_AND_SCALE_RATING_CHANGES`.
pub(super) fn decode_rating_change(row: &SqliteRow) -> Result<RatingHistoryEntry, StoreError> {
    let key = ColumnReader { table: "rating_change", row }.rating_key(1)?;
    let table = if key.is_pool_and_scale_digest() { "keyed_rating_change" } else { "rating_change" };
    let columns = ColumnReader { table, row };
    let decoded = RatingHistoryEntry {
        user: UserKey::from_bytes(columns.id_bytes(0, "user_key")?),
        key,
        rated_match_number: columns.uint32(2, "rated_match_number")?,
        match_id: MatchId::from_bytes(columns.id_bytes(3, "match_id")?),
        reported_at: from_ms(columns.int64(4, "reported_ms")?),
        rank: columns.uint32(5, "rank")?,
        side_count: columns.uint32(6, "side_count")?,
        before: PlayerRating {
            rating: columns.read(7, "rating_before")?,
            deviation: columns.read(8, "deviation_before")?,
        },
        after: PlayerRating {
            rating: columns.read(9, "rating_after")?,
            deviation: columns.read(10, "deviation_after")?,
        },
    };
    columns.verify_checksum("checksum", columns.int64(11, "checksum")?, rating_change_checksum(&decoded))?;
    Ok(decoded)
}

/// Decodes a row of `rating_statements::READ_FIRST_SCALE_OF_SET`.
pub(super) fn decode_first_scale_of_set(row: &SqliteRow) -> Result<FirstRatingScaleOfSet, StoreError> {
    let columns = ColumnReader { table: "first_rating_scale", row };
    let set_id = SetId(columns.uint32(0, "set_id")?);
    let scale = columns.rating_key(1)?;
    columns.verify_checksum("checksum", columns.int64(2, "checksum")?, first_rating_scale_checksum(set_id, scale))?;
    let defaults = defaults_version_from_number(columns.int64(3, "rating_defaults")?);
    Ok(FirstRatingScaleOfSet { set_id, key: scale, defaults_version: defaults })
}

/// Decodes a row of the feedback in `statements::BEGIN_WRITE_AND_READ_QUEUE_ROWS` into `rows`.
pub(super) fn decode_feedback_into(row: &SqliteRow, rows: &mut QueueRows) -> Result<(), StoreError> {
    let columns = ColumnReader { table: "feedback", row };
    let key =
        (MatchId::from_bytes(columns.id_bytes(0, "match_id")?), UserKey::from_bytes(columns.id_bytes(1, "user_key")?));
    let (stars, given_at) = (columns.read(2, "stars")?, from_ms(columns.int64(3, "given_ms")?));
    columns.verify_checksum(
        "checksum",
        columns.int64(4, "checksum")?,
        feedback_checksum(key.0, key.1, stars, given_at),
    )?;
    rows.feedback.insert(key, (stars, given_at));
    Ok(())
}

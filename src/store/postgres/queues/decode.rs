//! Decoding of queue rows, with the columns of `statements.rs` and `rating_statements.rs`.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::domain::id::{ConsentId, MatchId, RatingKey, SetId, SiloId, TicketId, UserKey};
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
use crate::store::queues::ticket_match_encoding::{MatchRow, TicketConstantColumns, TicketStateColumns};
use crate::store::queues::{
    ConsentConsumer, FinishedMatch, QueueKey, RatingRow, StoredBlockList, StoredTicket, TicketMembership,
};
use crate::store::rows::from_ms;
use crate::store::unknown_rows::RowKey;

/// Key of a row of `statements::READ_TICKETS`.
pub(super) fn ticket_key(row: &PgRow) -> Result<RowKey, StoreError> {
    let id = ColumnReader { table: "ticket", row }.id_bytes(0, "ticket_id")?;
    Ok(RowKey::Ticket(TicketId::from_bytes(id)))
}

/// Key of a row of `statements::READ_MATCHES`.
pub(super) fn match_key(row: &PgRow) -> Result<RowKey, StoreError> {
    let id = ColumnReader { table: "match", row }.id_bytes(0, "match_id")?;
    Ok(RowKey::Match(MatchId::from_bytes(id)))
}

/// Key of a row of `statements::READ_RESULTS`.
pub(super) fn result_key(row: &PgRow) -> Result<RowKey, StoreError> {
    let id = ColumnReader { table: "result", row }.id_bytes(0, "match_id")?;
    Ok(RowKey::Result(MatchId::from_bytes(id)))
}

pub(super) fn decode_ticket(row: &PgRow) -> Result<StoredTicket, StoreError> {
    let columns = ColumnReader { table: "ticket", row };
    let ticket = TicketConstantColumns {
        id: columns.id_bytes(0, "ticket_id")?,
        silo_id: columns.read(1, "silo_id")?,
        set_id: columns.read(2, "set_id")?,
        entered_ms: columns.read(3, "entered_ms")?,
        request_digest: columns.id_bytes(4, "request_digest")?,
        body: Cow::Borrowed(columns.read(5, "body")?),
    };
    ticket.decode(TicketStateColumns {
        state: i64::from(columns.read::<i16>(6, "state")?),
        match_id: columns.read::<Option<Uuid>>(7, "match_id")?.map(Uuid::into_bytes),
        end_reason: columns.read::<Option<i16>>(8, "end_reason")?.map(i64::from),
        expires_ms: columns.read(9, "expires_ms")?,
        purge_at_ms: columns.read(10, "purge_at_ms")?,
        version: columns.read(11, "version")?,
        acknowledged: columns.read(12, "acknowledged")?,
        seat_vectors: columns.read(13, "seat_vectors")?,
    })
}

/// Decodes a row of `LOCK_CONSENTS`.
pub(super) fn decode_consent(row: &PgRow) -> Result<(ConsentId, StoredConsent), StoreError> {
    let columns = ColumnReader { table: "consent", row };
    let consent = StoredConsent {
        consumer: columns.read::<Option<Uuid>>(1, "taken_by")?.map(|taker| ConsentConsumer(taker.into_bytes())),
        is_revoked: columns.read(2, "is_revoked")?,
        expires_at: from_ms(columns.read(3, "expires_ms")?),
    };
    Ok((ConsentId::from_bytes(columns.id_bytes(0, "consent_id")?), consent))
}

/// Decodes a row of `LOCK_BLOCK_LISTS`.
pub(super) fn decode_block_list(row: &PgRow) -> Result<StoredBlockList, StoreError> {
    let columns = ColumnReader { table: "block_list", row };
    let blocked = StoredBlockList::decode_blocked(columns.read(1, "blocked")?);
    Ok(StoredBlockList {
        user: UserKey::from_bytes(columns.id_bytes(0, "user_key")?),
        blocked: blocked.ok_or_else(|| columns.corrupt_row("blocked", "is not a sorted list of keys".into()))?,
        version: columns.read::<i64>(2, "version")?.cast_unsigned(),
    })
}

pub(super) fn decode_match(row: &PgRow) -> Result<Arc<Match>, StoreError> {
    let columns = ColumnReader { table: "match", row };
    let match_row = MatchRow {
        id: columns.id_bytes(0, "match_id")?,
        silo_id: columns.read(1, "silo_id")?,
        set_id: columns.read(2, "set_id")?,
        proposed_ms: columns.read(3, "proposed_ms")?,
        version: columns.read(4, "version")?,
        stage: i64::from(columns.read::<i16>(5, "stage")?),
        purge_at_ms: columns.read(6, "purge_at_ms")?,
        body: Cow::Borrowed(columns.read(7, "body")?),
    };
    match_row.decode()
}

/// Decodes a row of `READ_TICKETS_MATCHES_PENALTIES_OF_USERS` into `rows`.
pub(super) fn decode_ticket_match_or_penalty_of_user(row: &PgRow, rows: &mut QueueRows) -> Result<(), StoreError> {
    let kind: i32 = ColumnReader { table: "ticket_user", row }.read(0, "kind")?;
    let table =
        ["ticket_user", "match_user", "penalty"].get(kind.unsigned_abs() as usize).copied().unwrap_or("penalty");
    let columns = ColumnReader { table, row };
    let user = UserKey::from_bytes(columns.id_bytes(1, "user_key")?);
    match kind {
        0 => {
            let queue = QueueKey {
                set_id: SetId(columns.uint32(3, "set_id")?),
                silo: SiloId(columns.read::<i64>(4, "silo_id")?.cast_unsigned()),
            };
            let ticket_id = TicketId::from_bytes(columns.id_bytes(2, "ticket_id")?);
            rows.add_ticket_user(
                user,
                TicketMembership { queue, ticket_id, exclusive: columns.read::<i64>(5, "exclusive")? == 1 },
            );
        }
        1 => rows.add_match_user(user, MatchId::from_bytes(columns.id_bytes(2, "match_id")?)),
        _ => {
            let penalty = Penalty {
                level: columns.uint32(4, "level")?,
                cooldown_until: from_ms(columns.read(5, "cooldown_until_ms")?),
                resets_at: from_ms(columns.read(6, "resets_at_ms")?),
            };
            rows.penalties.insert((user, SetId(columns.uint32(3, "set_id")?)), penalty);
        }
    }
    Ok(())
}

/// Decodes a row of `READ_FIRST_SCALES`; `None` if it is corrupt.
pub(super) fn decode_first_scale((set_id, key, defaults): (i64, i64, i64)) -> Option<FirstRatingScaleOfSet> {
    Some(FirstRatingScaleOfSet {
        set_id: SetId(u32::try_from(set_id).ok()?),
        key: RatingKey::from_stored(key).filter(|key| key.is_pool_and_scale_digest())?,
        defaults_version: defaults_version_from_number(defaults),
    })
}

pub(super) fn decode_rating(row: &PgRow) -> Result<RatingRow, StoreError> {
    let key = ColumnReader { table: "rating", row }.rating_key(1)?;
    let table = if key.is_pool_and_scale_digest() { "keyed_rating" } else { "rating" };
    let columns = ColumnReader { table, row };
    Ok(RatingRow {
        user: UserKey::from_bytes(columns.id_bytes(0, "user_key")?),
        key,
        rating: PlayerRating { rating: columns.read(2, "rating")?, deviation: columns.read(3, "deviation")? },
        volatility: columns.read(4, "volatility")?,
        rated_match_count: columns.uint32(5, "match_count")?,
        last_match_at: from_ms(columns.read(6, "last_match_ms")?),
        streak: columns.read(7, "streak")?,
        satisfaction: UserSatisfactionStatistics {
            abandoned_matches: columns.uint32(8, "abandoned_matches")?,
            disputed_matches: columns.uint32(12, "disputed_matches")?,
            given_feedback_count: columns.uint32(9, "feedback_count")?,
            given_feedback_sum: columns.uint32(10, "feedback_sum")?,
        },
        last_match_active_period: columns.uint32(11, "active_periods")?,
    })
}

pub(super) fn decode_result(row: &PgRow) -> Result<Arc<MatchResult>, StoreError> {
    let columns = ColumnReader { table: "result", row };
    let result = ResultRow {
        id: columns.id_bytes(0, "match_id")?,
        silo_id: columns.read(1, "silo_id")?,
        set_id: columns.read(2, "set_id")?,
        reported_ms: columns.read(3, "reported_ms")?,
        request_digest: columns.id_bytes(4, "request_digest")?,
        body: Cow::Borrowed(columns.read(5, "body")?),
    };
    result.decode()
}

/// Decodes a result with its feedback.
pub(super) fn decode_finished_match(row: &PgRow) -> Result<FinishedMatch, StoreError> {
    let columns = ColumnReader { table: "feedback", row };
    Ok(FinishedMatch {
        result: decode_result(row)?,
        feedback_count: columns.uint32(6, "stars")?,
        feedback_sum: columns.uint32(7, "stars")?,
    })
}

pub(super) fn decode_rating_change(row: &PgRow) -> Result<RatingHistoryEntry, StoreError> {
    let key = ColumnReader { table: "rating_change", row }.rating_key(1)?;
    let table = if key.is_pool_and_scale_digest() { "keyed_rating_change" } else { "rating_change" };
    let columns = ColumnReader { table, row };
    Ok(RatingHistoryEntry {
        user: UserKey::from_bytes(columns.id_bytes(0, "user_key")?),
        key,
        rated_match_number: columns.uint32(2, "rated_match_number")?,
        match_id: MatchId::from_bytes(columns.id_bytes(3, "match_id")?),
        reported_at: from_ms(columns.read(4, "reported_ms")?),
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
    })
}

/// Decodes a player's feedback into `rows`.
pub(super) fn decode_feedback(row: &PgRow, rows: &mut QueueRows) -> Result<(), StoreError> {
    let columns = ColumnReader { table: "feedback", row };
    let key =
        (MatchId::from_bytes(columns.id_bytes(0, "match_id")?), UserKey::from_bytes(columns.id_bytes(1, "user_key")?));
    let stars = u8::try_from(columns.read::<i16>(2, "stars")?).unwrap_or(u8::MAX);
    rows.feedback.insert(key, (stars, from_ms(columns.read(3, "given_ms")?)));
    Ok(())
}

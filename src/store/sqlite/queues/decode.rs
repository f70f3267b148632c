//! From the file's rows to the store's values, each held against its checksum.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::sqlite::SqliteRow;

use crate::domain::id::{MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry, SatisfactionStats};
use crate::domain::queue::ticket::PlayerRating;
use crate::store::StoreError;
use crate::store::queues::queue_rows::{QueueRows, TicketUser};
use crate::store::queues::{FinishedMatch, QueueKey, RatingRow, StoredTicket};
use crate::store::rows::queue::{MatchRow, TicketRow, TicketStateRow};
use crate::store::rows::queue_checksums::{
    feedback_checksum, match_user_checksum, penalty_checksum, rating_change_checksum, rating_checksum,
    ticket_user_checksum,
};
use crate::store::rows::result::ResultRow;
use crate::store::rows::{ColumnReader, from_ms};

/// A row of `statements::TICKETS`.
pub(super) fn decode_ticket(row: &SqliteRow) -> Result<StoredTicket, StoreError> {
    let at = ColumnReader { table: "ticket", row };
    let ticket = TicketRow {
        id: at.id_bytes(0, "ticket_id")?,
        silo_id: at.int64(1, "silo_id")?,
        set_id: at.int64(2, "set_id")?,
        entered_ms: at.int64(3, "entered_ms")?,
        payload: at.id_bytes(4, "payload")?,
        body: Cow::Borrowed(at.read(5, "body")?),
    };
    at.verify_checksum("checksum", at.int64(6, "checksum")?, ticket.checksum())?;
    let standing = TicketStateRow {
        state: at.int64(7, "state")?,
        match_id: at.optional_id(8, "match_id")?,
        ending: at.read(9, "ending")?,
        expires_ms: at.int64(10, "expires_ms")?,
        forget_at_ms: at.read(11, "forget_at_ms")?,
        version: at.int64(12, "edition")?,
    };
    at.verify_checksum("standing", at.int64(13, "standing")?, standing.checksum(&ticket.id))?;
    ticket.decode(standing)
}

/// A row of `statements::MATCHES`.
pub(super) fn decode_match(row: &SqliteRow) -> Result<Arc<Match>, StoreError> {
    let at = ColumnReader { table: "match", row };
    let play = MatchRow {
        id: at.id_bytes(0, "match_id")?,
        silo_id: at.int64(1, "silo_id")?,
        set_id: at.int64(2, "set_id")?,
        proposed_ms: at.int64(3, "proposed_ms")?,
        version: at.int64(4, "edition")?,
        stage: at.int64(5, "stage")?,
        forget_at_ms: at.read(6, "forget_at_ms")?,
        body: Cow::Borrowed(at.read(7, "body")?),
    };
    at.verify_checksum("checksum", at.int64(8, "checksum")?, play.checksum())?;
    play.decode()
}

/// A row of `statements::USERS`, added to what is known.
pub(super) fn decode_user_row(row: &SqliteRow, picture: &mut QueueRows) -> Result<(), StoreError> {
    let kind: i64 = ColumnReader { table: "ticket_user", row }.int64(0, "kind")?;
    match kind {
        0 => {
            let at = ColumnReader { table: "ticket_user", row };
            let (user, ticket) = (UserKey::from_bytes(at.id_bytes(1, "user_key")?), at.id_bytes(2, "ticket_id")?);
            let queue = QueueKey {
                set_id: SetId(at.uint32(3, "set_id")?),
                silo: SiloId(at.int64(4, "silo_id")?.cast_unsigned()),
            };
            let spot =
                TicketUser { queue, ticket: TicketId::from_bytes(ticket), exclusive: at.int64(5, "alone")? == 1 };
            at.verify_checksum("checksum", at.int64(7, "checksum")?, ticket_user_checksum(user, &spot))?;
            picture.add_ticket_user(user, spot);
        }
        1 => {
            let at = ColumnReader { table: "match_user", row };
            let (user, id) = (UserKey::from_bytes(at.id_bytes(1, "user_key")?), at.id_bytes(2, "match_id")?);
            let id = MatchId::from_bytes(id);
            at.verify_checksum("checksum", at.int64(7, "checksum")?, match_user_checksum(user, id))?;
            picture.add_match_user(user, id);
        }
        _ => {
            let at = ColumnReader { table: "penalty", row };
            let key = (UserKey::from_bytes(at.id_bytes(1, "user_key")?), SetId(at.uint32(3, "set_id")?));
            let penalty = Penalty {
                level: at.uint32(4, "rung")?,
                cooldown_until: from_ms(at.int64(5, "until_ms")?),
                resets_at: from_ms(at.int64(6, "resets_at_ms")?),
            };
            at.verify_checksum("checksum", at.int64(7, "checksum")?, penalty_checksum(key, &penalty))?;
            picture.penalties.insert(key, penalty);
        }
    }
    Ok(())
}

/// A row of `statements::RATINGS`.
pub(super) fn decode_rating(row: &SqliteRow) -> Result<RatingRow, StoreError> {
    let at = ColumnReader { table: "rating", row };
    let read = RatingRow {
        user: UserKey::from_bytes(at.id_bytes(0, "user_key")?),
        set_id: SetId(at.uint32(1, "set_id")?),
        rating: PlayerRating { rating: at.read(2, "rating")?, deviation: at.read(3, "deviation")? },
        volatility: at.read(4, "volatility")?,
        match_count: at.uint32(5, "matches")?,
        last_match_at: from_ms(at.int64(6, "last_ms")?),
        streak: at.read(8, "streak")?,
        satisfaction: SatisfactionStats {
            abandoned_matches: at.uint32(9, "abandoned")?,
            feedback_count: at.uint32(10, "scores")?,
            feedback_sum: at.uint32(11, "score_sum")?,
        },
        periods_played: at.uint32(12, "played")?,
    };
    at.verify_checksum("checksum", at.int64(7, "checksum")?, rating_checksum(&read))?;
    Ok(read)
}

/// A row of `statements::RESULTS`.
pub(super) fn decode_result(row: &SqliteRow) -> Result<Arc<MatchResult>, StoreError> {
    let at = ColumnReader { table: "result", row };
    let result = ResultRow {
        id: at.id_bytes(0, "match_id")?,
        silo_id: at.int64(1, "silo_id")?,
        set_id: at.int64(2, "set_id")?,
        reported_ms: at.int64(3, "reported_ms")?,
        payload: at.id_bytes(4, "payload")?,
        body: Cow::Borrowed(at.read(5, "body")?),
    };
    at.verify_checksum("checksum", at.int64(6, "checksum")?, result.checksum())?;
    result.decode()
}

/// A row of `statements::FINISHED`.
pub(super) fn decode_finished_match(row: &SqliteRow) -> Result<FinishedMatch, StoreError> {
    let at = ColumnReader { table: "score", row };
    Ok(FinishedMatch {
        result: decode_result(row)?,
        feedback_count: at.uint32(7, "score")?,
        star_sum: at.uint32(8, "score")?,
    })
}

/// A row of `statements::RATING_CHANGES`.
pub(super) fn decode_rating_change(row: &SqliteRow) -> Result<RatingHistoryEntry, StoreError> {
    let at = ColumnReader { table: "rating_change", row };
    let read = RatingHistoryEntry {
        user: UserKey::from_bytes(at.id_bytes(0, "user_key")?),
        set_id: SetId(at.uint32(1, "set_id")?),
        rated_match_number: at.uint32(2, "number")?,
        match_id: MatchId::from_bytes(at.id_bytes(3, "match_id")?),
        reported_at: from_ms(at.int64(4, "at_ms")?),
        rank: at.uint32(5, "rank")?,
        side_count: at.uint32(6, "sides")?,
        before: PlayerRating { rating: at.read(7, "rating_before")?, deviation: at.read(8, "deviation_before")? },
        after: PlayerRating { rating: at.read(9, "rating_after")?, deviation: at.read(10, "deviation_after")? },
    };
    at.verify_checksum("checksum", at.int64(11, "checksum")?, rating_change_checksum(&read))?;
    Ok(read)
}

/// A row of `statements::SCORES`, added to what is known.
pub(super) fn decode_feedback(row: &SqliteRow, picture: &mut QueueRows) -> Result<(), StoreError> {
    let at = ColumnReader { table: "score", row };
    let key = (MatchId::from_bytes(at.id_bytes(0, "match_id")?), UserKey::from_bytes(at.id_bytes(1, "user_key")?));
    let (score, moment) = (at.read(2, "score")?, from_ms(at.int64(3, "at_ms")?));
    at.verify_checksum("checksum", at.int64(4, "checksum")?, feedback_checksum(key.0, key.1, score, moment))?;
    picture.feedback.insert(key, (score, moment));
    Ok(())
}

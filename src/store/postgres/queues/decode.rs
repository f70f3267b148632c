//! From the database's rows to the store's values, as `statements.rs` lays the columns out.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry, SatisfactionStats};
use crate::domain::queue::ticket::PlayerRating;
use crate::store::StoreError;
use crate::store::postgres::decode::ColumnReader;
use crate::store::queues::queue_rows::{QueueRows, TicketUser};
use crate::store::queues::{FinishedMatch, QueueKey, RatingRow, StoredTicket};
use crate::store::rows::from_ms;
use crate::store::rows::queue::{MatchRow, TicketRow, TicketStateRow};
use crate::store::rows::result::ResultRow;

/// A ticket.
pub(super) fn decode_ticket(row: &PgRow) -> Result<StoredTicket, StoreError> {
    let at = ColumnReader { table: "ticket", row };
    let ticket = TicketRow {
        id: at.id_bytes(0, "ticket_id")?,
        silo_id: at.read(1, "silo_id")?,
        set_id: at.read(2, "set_id")?,
        entered_ms: at.read(3, "entered_ms")?,
        payload: at.id_bytes(4, "payload")?,
        body: Cow::Borrowed(at.read(5, "body")?),
    };
    ticket.decode(TicketStateRow {
        state: i64::from(at.read::<i16>(6, "state")?),
        match_id: at.read::<Option<Uuid>>(7, "match_id")?.map(Uuid::into_bytes),
        ending: at.read::<Option<i16>>(8, "ending")?.map(i64::from),
        expires_ms: at.read(9, "expires_ms")?,
        forget_at_ms: at.read(10, "forget_at_ms")?,
        version: at.read(11, "edition")?,
    })
}

/// A match.
pub(super) fn decode_match(row: &PgRow) -> Result<Arc<Match>, StoreError> {
    let at = ColumnReader { table: "match", row };
    let play = MatchRow {
        id: at.id_bytes(0, "match_id")?,
        silo_id: at.read(1, "silo_id")?,
        set_id: at.read(2, "set_id")?,
        proposed_ms: at.read(3, "proposed_ms")?,
        version: at.read(4, "edition")?,
        stage: i64::from(at.read::<i16>(5, "stage")?),
        forget_at_ms: at.read(6, "forget_at_ms")?,
        body: Cow::Borrowed(at.read(7, "body")?),
    };
    play.decode()
}

/// A row of `USERS`, added to what is known.
pub(super) fn decode_user_row(row: &PgRow, picture: &mut QueueRows) -> Result<(), StoreError> {
    let kind: i32 = ColumnReader { table: "ticket_user", row }.read(0, "kind")?;
    let table =
        ["ticket_user", "match_user", "penalty"].get(kind.unsigned_abs() as usize).copied().unwrap_or("penalty");
    let at = ColumnReader { table, row };
    let user = UserKey::from_bytes(at.id_bytes(1, "user_key")?);
    match kind {
        0 => {
            let queue = QueueKey {
                set_id: SetId(at.uint32(3, "set_id")?),
                silo: SiloId(at.read::<i64>(4, "silo_id")?.cast_unsigned()),
            };
            let ticket = TicketId::from_bytes(at.id_bytes(2, "ticket_id")?);
            picture.add_ticket_user(user, TicketUser { queue, ticket, exclusive: at.read::<i64>(5, "alone")? == 1 });
        }
        1 => picture.add_match_user(user, MatchId::from_bytes(at.id_bytes(2, "match_id")?)),
        _ => {
            let penalty = Penalty {
                level: at.uint32(4, "rung")?,
                cooldown_until: from_ms(at.read(5, "until_ms")?),
                resets_at: from_ms(at.read(6, "resets_at_ms")?),
            };
            picture.penalties.insert((user, SetId(at.uint32(3, "set_id")?)), penalty);
        }
    }
    Ok(())
}

/// A rating.
pub(super) fn decode_rating(row: &PgRow) -> Result<RatingRow, StoreError> {
    let at = ColumnReader { table: "rating", row };
    Ok(RatingRow {
        user: UserKey::from_bytes(at.id_bytes(0, "user_key")?),
        set_id: SetId(at.uint32(1, "set_id")?),
        rating: PlayerRating { rating: at.read(2, "rating")?, deviation: at.read(3, "deviation")? },
        volatility: at.read(4, "volatility")?,
        match_count: at.uint32(5, "matches")?,
        last_match_at: from_ms(at.read(6, "last_ms")?),
        streak: at.read(7, "streak")?,
        satisfaction: SatisfactionStats {
            abandoned_matches: at.uint32(8, "abandoned")?,
            feedback_count: at.uint32(9, "scores")?,
            feedback_sum: at.uint32(10, "score_sum")?,
        },
        periods_played: at.uint32(11, "played")?,
    })
}

/// What came of a match.
pub(super) fn decode_result(row: &PgRow) -> Result<Arc<MatchResult>, StoreError> {
    let at = ColumnReader { table: "result", row };
    let result = ResultRow {
        id: at.id_bytes(0, "match_id")?,
        silo_id: at.read(1, "silo_id")?,
        set_id: at.read(2, "set_id")?,
        reported_ms: at.read(3, "reported_ms")?,
        payload: at.id_bytes(4, "payload")?,
        body: Cow::Borrowed(at.read(5, "body")?),
    };
    result.decode()
}

/// A finished match, with what players thought of it.
pub(super) fn decode_finished_match(row: &PgRow) -> Result<FinishedMatch, StoreError> {
    let at = ColumnReader { table: "score", row };
    Ok(FinishedMatch {
        result: decode_result(row)?,
        feedback_count: at.uint32(6, "score")?,
        star_sum: at.uint32(7, "score")?,
    })
}

/// A change of a rating.
pub(super) fn decode_rating_change(row: &PgRow) -> Result<RatingHistoryEntry, StoreError> {
    let at = ColumnReader { table: "rating_change", row };
    Ok(RatingHistoryEntry {
        user: UserKey::from_bytes(at.id_bytes(0, "user_key")?),
        set_id: SetId(at.uint32(1, "set_id")?),
        rated_match_number: at.uint32(2, "number")?,
        match_id: MatchId::from_bytes(at.id_bytes(3, "match_id")?),
        reported_at: from_ms(at.read(4, "at_ms")?),
        rank: at.uint32(5, "rank")?,
        side_count: at.uint32(6, "sides")?,
        before: PlayerRating { rating: at.read(7, "rating_before")?, deviation: at.read(8, "deviation_before")? },
        after: PlayerRating { rating: at.read(9, "rating_after")?, deviation: at.read(10, "deviation_after")? },
    })
}

/// What a player thought of a match, added to what is known.
pub(super) fn decode_feedback(row: &PgRow, picture: &mut QueueRows) -> Result<(), StoreError> {
    let at = ColumnReader { table: "score", row };
    let key = (MatchId::from_bytes(at.id_bytes(0, "match_id")?), UserKey::from_bytes(at.id_bytes(1, "user_key")?));
    let score = u8::try_from(at.read::<i16>(2, "score")?).unwrap_or(u8::MAX);
    picture.feedback.insert(key, (score, from_ms(at.read(3, "at_ms")?)));
    Ok(())
}

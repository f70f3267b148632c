//! From the database's rows to the store's values, as `statements.rs` lays the columns out.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::life::Match;
use crate::domain::life::penalty::Penalty;
use crate::domain::queue::ticket::Rated;
use crate::domain::result::{MatchResult, RatingChange, Satisfaction};
use crate::store::StoreError;
use crate::store::postgres::read::Place;
use crate::store::queues::picture::{Picture, Spot};
use crate::store::queues::{Finished, QueueKey, RatingRow, StoredTicket};
use crate::store::rows::from_ms;
use crate::store::rows::queue::{MatchRow, StandingRow, TicketRow};
use crate::store::rows::result::ResultRow;

/// A ticket.
pub(super) fn ticket(row: &PgRow) -> Result<StoredTicket, StoreError> {
    let at = Place { table: "ticket", row };
    let ticket = TicketRow {
        id: at.name(0, "ticket_id")?,
        silo_id: at.get(1, "silo_id")?,
        set_id: at.get(2, "set_id")?,
        entered_ms: at.get(3, "entered_ms")?,
        payload: at.name(4, "payload")?,
        body: Cow::Borrowed(at.get(5, "body")?),
    };
    ticket.stored(StandingRow {
        state: i64::from(at.get::<i16>(6, "state")?),
        match_id: at.get::<Option<Uuid>>(7, "match_id")?.map(Uuid::into_bytes),
        ending: at.get::<Option<i16>>(8, "ending")?.map(i64::from),
        expires_ms: at.get(9, "expires_ms")?,
        forget_at_ms: at.get(10, "forget_at_ms")?,
        edition: at.get(11, "edition")?,
    })
}

/// A match.
pub(super) fn play(row: &PgRow) -> Result<Arc<Match>, StoreError> {
    let at = Place { table: "match", row };
    let play = MatchRow {
        id: at.name(0, "match_id")?,
        silo_id: at.get(1, "silo_id")?,
        set_id: at.get(2, "set_id")?,
        proposed_ms: at.get(3, "proposed_ms")?,
        edition: at.get(4, "edition")?,
        stage: i64::from(at.get::<i16>(5, "stage")?),
        forget_at_ms: at.get(6, "forget_at_ms")?,
        body: Cow::Borrowed(at.get(7, "body")?),
    };
    play.play()
}

/// A row of `USERS`, added to what is known.
pub(super) fn user(row: &PgRow, picture: &mut Picture) -> Result<(), StoreError> {
    let kind: i32 = Place { table: "ticket_user", row }.get(0, "kind")?;
    let table =
        ["ticket_user", "match_user", "penalty"].get(kind.unsigned_abs() as usize).copied().unwrap_or("penalty");
    let at = Place { table, row };
    let user = UserKey::from_bytes(at.name(1, "user_key")?);
    match kind {
        0 => {
            let queue = QueueKey {
                set_id: SetId(at.count(3, "set_id")?),
                silo: SiloId(at.get::<i64>(4, "silo_id")?.cast_unsigned()),
            };
            let ticket = TicketId::from_bytes(at.name(2, "ticket_id")?);
            picture.add_spot(user, Spot { queue, ticket, alone: at.get::<i64>(5, "alone")? == 1 });
        }
        1 => picture.add_player(user, MatchId::from_bytes(at.name(2, "match_id")?)),
        _ => {
            let penalty = Penalty {
                rung: at.count(4, "rung")?,
                until: from_ms(at.get(5, "until_ms")?),
                resets_at: from_ms(at.get(6, "resets_at_ms")?),
            };
            picture.penalties.insert((user, SetId(at.count(3, "set_id")?)), penalty);
        }
    }
    Ok(())
}

/// A rating.
pub(super) fn rating(row: &PgRow) -> Result<RatingRow, StoreError> {
    let at = Place { table: "rating", row };
    Ok(RatingRow {
        user: UserKey::from_bytes(at.name(0, "user_key")?),
        set_id: SetId(at.count(1, "set_id")?),
        rated: Rated { rating: at.get(2, "rating")?, deviation: at.get(3, "deviation")? },
        volatility: at.get(4, "volatility")?,
        matches: at.count(5, "matches")?,
        last: from_ms(at.get(6, "last_ms")?),
        streak: at.get(7, "streak")?,
        satisfaction: Satisfaction {
            abandoned: at.count(8, "abandoned")?,
            scores: at.count(9, "scores")?,
            score_sum: at.count(10, "score_sum")?,
        },
        played: at.count(11, "played")?,
    })
}

/// What came of a match.
pub(super) fn result(row: &PgRow) -> Result<Arc<MatchResult>, StoreError> {
    let at = Place { table: "result", row };
    let result = ResultRow {
        id: at.name(0, "match_id")?,
        silo_id: at.get(1, "silo_id")?,
        set_id: at.get(2, "set_id")?,
        reported_ms: at.get(3, "reported_ms")?,
        payload: at.name(4, "payload")?,
        body: Cow::Borrowed(at.get(5, "body")?),
    };
    result.result()
}

/// A finished match, with what players thought of it.
pub(super) fn finished(row: &PgRow) -> Result<Finished, StoreError> {
    let at = Place { table: "score", row };
    Ok(Finished { result: result(row)?, scores: at.count(6, "score")?, score_sum: at.count(7, "score")? })
}

/// A change of a rating.
pub(super) fn change(row: &PgRow) -> Result<RatingChange, StoreError> {
    let at = Place { table: "rating_change", row };
    Ok(RatingChange {
        user: UserKey::from_bytes(at.name(0, "user_key")?),
        set_id: SetId(at.count(1, "set_id")?),
        number: at.count(2, "number")?,
        match_id: MatchId::from_bytes(at.name(3, "match_id")?),
        at: from_ms(at.get(4, "at_ms")?),
        rank: at.count(5, "rank")?,
        sides: at.count(6, "sides")?,
        before: Rated { rating: at.get(7, "rating_before")?, deviation: at.get(8, "deviation_before")? },
        after: Rated { rating: at.get(9, "rating_after")?, deviation: at.get(10, "deviation_after")? },
    })
}

/// What a player thought of a match, added to what is known.
pub(super) fn score(row: &PgRow, picture: &mut Picture) -> Result<(), StoreError> {
    let at = Place { table: "score", row };
    let key = (MatchId::from_bytes(at.name(0, "match_id")?), UserKey::from_bytes(at.name(1, "user_key")?));
    let score = u8::try_from(at.get::<i16>(2, "score")?).unwrap_or(u8::MAX);
    picture.scores.insert(key, (score, from_ms(at.get(3, "at_ms")?)));
    Ok(())
}

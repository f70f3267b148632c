//! From the file's rows to the store's values, each held against its checksum.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::sqlite::SqliteRow;

use crate::domain::id::{MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::life::Match;
use crate::domain::life::penalty::Penalty;
use crate::domain::queue::ticket::Rated;
use crate::domain::result::{MatchResult, RatingChange, Satisfaction};
use crate::store::StoreError;
use crate::store::queues::picture::{Picture, Spot};
use crate::store::queues::{Finished, QueueKey, RatingRow, StoredTicket};
use crate::store::rows::queue::{MatchRow, StandingRow, TicketRow};
use crate::store::rows::queue_user::{
    change_checksum, penalty_checksum, player_checksum, rating_checksum, score_checksum, spot_checksum,
};
use crate::store::rows::result::ResultRow;
use crate::store::rows::{Place, from_ms};

/// A row of `statements::TICKETS`.
pub(super) fn ticket(row: &SqliteRow) -> Result<StoredTicket, StoreError> {
    let at = Place { table: "ticket", row };
    let ticket = TicketRow {
        id: at.name(0, "ticket_id")?,
        silo_id: at.number(1, "silo_id")?,
        set_id: at.number(2, "set_id")?,
        entered_ms: at.number(3, "entered_ms")?,
        payload: at.name(4, "payload")?,
        body: Cow::Borrowed(at.get(5, "body")?),
    };
    at.agrees("checksum", at.number(6, "checksum")?, ticket.checksum())?;
    let standing = StandingRow {
        state: at.number(7, "state")?,
        match_id: at.name_or_none(8, "match_id")?,
        ending: at.get(9, "ending")?,
        expires_ms: at.number(10, "expires_ms")?,
        forget_at_ms: at.get(11, "forget_at_ms")?,
        edition: at.number(12, "edition")?,
    };
    at.agrees("standing", at.number(13, "standing")?, standing.checksum(&ticket.id))?;
    ticket.stored(standing)
}

/// A row of `statements::MATCHES`.
pub(super) fn play(row: &SqliteRow) -> Result<Arc<Match>, StoreError> {
    let at = Place { table: "match", row };
    let play = MatchRow {
        id: at.name(0, "match_id")?,
        silo_id: at.number(1, "silo_id")?,
        set_id: at.number(2, "set_id")?,
        proposed_ms: at.number(3, "proposed_ms")?,
        edition: at.number(4, "edition")?,
        stage: at.number(5, "stage")?,
        forget_at_ms: at.get(6, "forget_at_ms")?,
        body: Cow::Borrowed(at.get(7, "body")?),
    };
    at.agrees("checksum", at.number(8, "checksum")?, play.checksum())?;
    play.play()
}

/// A row of `statements::USERS`, added to what is known.
pub(super) fn user(row: &SqliteRow, picture: &mut Picture) -> Result<(), StoreError> {
    let kind: i64 = Place { table: "ticket_user", row }.number(0, "kind")?;
    match kind {
        0 => {
            let at = Place { table: "ticket_user", row };
            let (user, ticket) = (UserKey::from_bytes(at.name(1, "user_key")?), at.name(2, "ticket_id")?);
            let queue = QueueKey {
                set_id: SetId(at.small(3, "set_id")?),
                silo: SiloId(at.number(4, "silo_id")?.cast_unsigned()),
            };
            let spot = Spot { queue, ticket: TicketId::from_bytes(ticket), alone: at.number(5, "alone")? == 1 };
            at.agrees("checksum", at.number(7, "checksum")?, spot_checksum(user, &spot))?;
            picture.add_spot(user, spot);
        }
        1 => {
            let at = Place { table: "match_user", row };
            let (user, id) = (UserKey::from_bytes(at.name(1, "user_key")?), at.name(2, "match_id")?);
            let id = MatchId::from_bytes(id);
            at.agrees("checksum", at.number(7, "checksum")?, player_checksum(user, id))?;
            picture.add_player(user, id);
        }
        _ => {
            let at = Place { table: "penalty", row };
            let key = (UserKey::from_bytes(at.name(1, "user_key")?), SetId(at.small(3, "set_id")?));
            let penalty = Penalty {
                rung: at.small(4, "rung")?,
                until: from_ms(at.number(5, "until_ms")?),
                resets_at: from_ms(at.number(6, "resets_at_ms")?),
            };
            at.agrees("checksum", at.number(7, "checksum")?, penalty_checksum(key, &penalty))?;
            picture.penalties.insert(key, penalty);
        }
    }
    Ok(())
}

/// A row of `statements::RATINGS`.
pub(super) fn rating(row: &SqliteRow) -> Result<RatingRow, StoreError> {
    let at = Place { table: "rating", row };
    let read = RatingRow {
        user: UserKey::from_bytes(at.name(0, "user_key")?),
        set_id: SetId(at.small(1, "set_id")?),
        rated: Rated { rating: at.get(2, "rating")?, deviation: at.get(3, "deviation")? },
        volatility: at.get(4, "volatility")?,
        matches: at.small(5, "matches")?,
        last: from_ms(at.number(6, "last_ms")?),
        streak: at.get(8, "streak")?,
        satisfaction: Satisfaction {
            abandoned: at.small(9, "abandoned")?,
            scores: at.small(10, "scores")?,
            score_sum: at.small(11, "score_sum")?,
        },
        played: at.small(12, "played")?,
    };
    at.agrees("checksum", at.number(7, "checksum")?, rating_checksum(&read))?;
    Ok(read)
}

/// A row of `statements::RESULTS`.
pub(super) fn result(row: &SqliteRow) -> Result<Arc<MatchResult>, StoreError> {
    let at = Place { table: "result", row };
    let result = ResultRow {
        id: at.name(0, "match_id")?,
        silo_id: at.number(1, "silo_id")?,
        set_id: at.number(2, "set_id")?,
        reported_ms: at.number(3, "reported_ms")?,
        payload: at.name(4, "payload")?,
        body: Cow::Borrowed(at.get(5, "body")?),
    };
    at.agrees("checksum", at.number(6, "checksum")?, result.checksum())?;
    result.result()
}

/// A row of `statements::FINISHED`.
pub(super) fn finished(row: &SqliteRow) -> Result<Finished, StoreError> {
    let at = Place { table: "score", row };
    Ok(Finished { result: result(row)?, scores: at.small(7, "score")?, score_sum: at.small(8, "score")? })
}

/// A row of `statements::RATING_CHANGES`.
pub(super) fn change(row: &SqliteRow) -> Result<RatingChange, StoreError> {
    let at = Place { table: "rating_change", row };
    let read = RatingChange {
        user: UserKey::from_bytes(at.name(0, "user_key")?),
        set_id: SetId(at.small(1, "set_id")?),
        number: at.small(2, "number")?,
        match_id: MatchId::from_bytes(at.name(3, "match_id")?),
        at: from_ms(at.number(4, "at_ms")?),
        rank: at.small(5, "rank")?,
        sides: at.small(6, "sides")?,
        before: Rated { rating: at.get(7, "rating_before")?, deviation: at.get(8, "deviation_before")? },
        after: Rated { rating: at.get(9, "rating_after")?, deviation: at.get(10, "deviation_after")? },
    };
    at.agrees("checksum", at.number(11, "checksum")?, change_checksum(&read))?;
    Ok(read)
}

/// A row of `statements::SCORES`, added to what is known.
pub(super) fn score(row: &SqliteRow, picture: &mut Picture) -> Result<(), StoreError> {
    let at = Place { table: "score", row };
    let key = (MatchId::from_bytes(at.name(0, "match_id")?), UserKey::from_bytes(at.name(1, "user_key")?));
    let (score, moment) = (at.get(2, "score")?, from_ms(at.number(3, "at_ms")?));
    at.agrees("checksum", at.number(4, "checksum")?, score_checksum(key.0, key.1, score, moment))?;
    picture.scores.insert(key, (score, moment));
    Ok(())
}

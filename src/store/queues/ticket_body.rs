//! JSON encoding of the parts of a ticket without a column, with short keys, as in `adverts/row_body.rs`.
//!
//! | key | content |
//! |---|---|
//! | `s` | subject, 32 hexadecimal digits |
//! | `q` | session, with the keys of `adverts/row_body.rs` |
//! | `j` | join seats |
//! | `t` | ratings: rating, deviation |
//! | `k` | digest key of the ratings, as a signed number |
//! | `b` | blocked users |
//! | `a` | exclusive |
//! | `o` | own round trips, in the order of those in the session |
//! | `n` | players who answer for themselves |
//!
//! Absent and empty values have no key. A row with an unknown key is left to newer servers, as in
//! `adverts/row_body.rs`. Times are milliseconds since the Unix epoch. NaN and infinity, which no correct server writes,
//! become null and are read as NaN.

use serde::de::Error;
use serde::{Deserialize, Serialize};

use crate::domain::id::{RatingKey, SetId, TicketId, UserKey};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::time::UnixMs;
use crate::store::adverts::row_body::{BodyToRead, BodyToWrite, HexKey, JsonList, to_json_text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TicketBodyToRead {
    #[serde(rename = "s")]
    subject: Option<HexKey>,
    #[serde(rename = "q")]
    session: BodyToRead,
    #[serde(rename = "j", default)]
    join_seats: u16,
    #[serde(rename = "t", default)]
    player_ratings: Vec<(Option<f64>, Option<f64>)>,
    #[serde(rename = "k", default)]
    rating_digest_key: Option<i64>,
    #[serde(rename = "b", default)]
    blocked_users: Vec<HexKey>,
    #[serde(rename = "a", default)]
    exclusive: bool,
    #[serde(rename = "o")]
    own_round_trips_ms: Option<Box<[f32]>>,
    #[serde(rename = "n", default)]
    self_answering: Vec<HexKey>,
}

#[derive(Serialize)]
struct TicketBodyToWrite<'a> {
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    subject: Option<HexKey>,
    #[serde(rename = "q")]
    session: BodyToWrite<'a>,
    #[serde(rename = "j", skip_serializing_if = "is_zero")]
    join_seats: u16,
    #[serde(rename = "t", skip_serializing_if = "JsonList::is_empty")]
    player_ratings: JsonList<'a, PlayerRating, (f64, f64)>,
    #[serde(rename = "k", skip_serializing_if = "Option::is_none")]
    rating_digest_key: Option<i64>,
    #[serde(rename = "b", skip_serializing_if = "JsonList::is_empty")]
    blocked_users: JsonList<'a, UserKey, HexKey>,
    #[serde(rename = "a", skip_serializing_if = "std::ops::Not::not")]
    exclusive: bool,
    #[serde(rename = "o", skip_serializing_if = "Option::is_none")]
    own_round_trips_ms: Option<&'a [f32]>,
    #[serde(rename = "n", skip_serializing_if = "JsonList::is_empty")]
    self_answering: JsonList<'a, UserKey, HexKey>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

pub(in crate::store) fn encode_ticket(ticket: &Ticket) -> String {
    to_json_text(&TicketBodyToWrite {
        subject: ticket.subject.map(HexKey::from_user_key),
        session: BodyToWrite::from_session(&ticket.session),
        join_seats: ticket.session.offered_seats,
        rating_digest_key: ticket.rating_digest_key.map(RatingKey::to_stored),
        player_ratings: JsonList(&ticket.player_ratings, |rating| (rating.rating, rating.deviation)),
        blocked_users: JsonList(&ticket.blocked_users, |user| HexKey::from_user_key(*user)),
        exclusive: ticket.excludes_other_tickets,
        own_round_trips_ms: ticket.exact_round_trips_ms.as_deref(),
        self_answering: JsonList(&ticket.self_answering_users, |user| HexKey::from_user_key(*user)),
    })
}

/// Decodes a ticket. The caller sets the values that have a column.
pub(in crate::store) fn decode_ticket(text: &str) -> Result<Ticket, serde_json::Error> {
    let body: TicketBodyToRead = serde_json::from_str(text)?;
    let mut session = body.session.into_session()?;
    session.offered_seats = body.join_seats;
    let player_rating = |(rating, deviation): (Option<f64>, Option<f64>)| PlayerRating {
        rating: rating.unwrap_or(f64::NAN),
        deviation: deviation.unwrap_or(f64::NAN),
    };
    let rating_key = |number| {
        let key = RatingKey::from_stored(number).filter(|key| key.is_pool_and_scale_digest());
        key.ok_or_else(|| serde_json::Error::custom(format_args!("{number} is not a digest key")))
    };
    if body.own_round_trips_ms.as_ref().is_some_and(|own| own.len() != session.region_latencies.len()) {
        return Err(serde_json::Error::custom("the number of own round trips is not that of the regions"));
    }
    Ok(Ticket {
        id: TicketId::from_bytes([0; 16]),
        set_id: SetId::default(),
        subject: body.subject.map(HexKey::user_key),
        entered_at: UnixMs::default(),
        session,
        player_ratings: body.player_ratings.into_iter().map(player_rating).collect(),
        rating_digest_key: body.rating_digest_key.map(rating_key).transpose()?,
        blocked_users: body.blocked_users.into_iter().map(HexKey::user_key).collect(),
        excludes_other_tickets: body.exclusive,
        exact_round_trips_ms: body.own_round_trips_ms,
        self_answering_users: body.self_answering.into_iter().map(HexKey::user_key).collect(),
    })
}

//! The parts of a ticket and of a match that SQL never asks about, as JSON texts with short keys, as `body.rs` has them.
//!
//! | ticket | what | | match | what |
//! |---|---|---|---|---|
//! | `s` | subject, 32 hexadecimal digits | | `h` | ruleset hash |
//! | `q` | session, with the keys of `body.rs` | | `m` | members: ticket, entered, team, seats |
//! | `j` | join seats | | | a seat: user, player, role or null, answer or null |
//! | `t` | ratings: rating, deviation | | `q` | quality |
//! | `b` | blocked users | | `r` | region |
//! | `a` | waits alone | | `b` | the session that it fills up |
//! | | | | `d` | deadline of the ready check, or for a server |
//! | | | | `e`, `u` | began, is over by itself |
//! | | | | `v`, `c` | server: advertisement and reservation; connect data in hexadecimal digits |
//! | | | | `p` | peer: its host |
//! | | | | `o` | outcome, in the order of `Outcome` |
//! | | | | `n` | over, and was played nowhere that fireteam knows of |
//!
//! What is absent or empty has no key, and a key that is not known is passed over. Moments are milliseconds since the Unix
//! epoch. A number that JSON has no word for, which no sound server has, is null and comes back as no number.

use serde::de::Error;
use serde::{Deserialize, Serialize};

use crate::domain::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::{Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::time::UnixMs;
use crate::store::rows::body::{BodyToRead, BodyToWrite, HexKey, JsonList, to_json_text};

#[derive(Deserialize)]
struct TicketBodyToRead {
    s: Option<HexKey>,
    q: BodyToRead,
    #[serde(default)]
    j: u16,
    #[serde(default)]
    t: Vec<(Option<f64>, Option<f64>)>,
    #[serde(default)]
    b: Vec<HexKey>,
    #[serde(default)]
    a: bool,
}

#[derive(Serialize)]
struct TicketBodyToWrite<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<HexKey>,
    q: BodyToWrite<'a>,
    #[serde(skip_serializing_if = "is_zero")]
    j: u16,
    #[serde(skip_serializing_if = "JsonList::is_empty")]
    t: JsonList<'a, PlayerRating, (f64, f64)>,
    #[serde(skip_serializing_if = "JsonList::is_empty")]
    b: JsonList<'a, UserKey, HexKey>,
    #[serde(skip_serializing_if = "is_false")]
    a: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The text to keep of a ticket.
pub(super) fn encode_ticket(ticket: &Ticket) -> String {
    to_json_text(&TicketBodyToWrite {
        s: ticket.subject.map(HexKey::from_user_key),
        q: BodyToWrite::from_session(&ticket.session),
        j: ticket.session.join_seats,
        t: JsonList(&ticket.player_ratings, |it| (it.rating, it.deviation)),
        b: JsonList(&ticket.blocked_users, |it| HexKey::from_user_key(*it)),
        a: ticket.exclusive,
    })
}

/// The ticket in a text, but for what has a column of its own: the caller puts that in.
pub(super) fn decode_ticket(text: &str) -> Result<Ticket, serde_json::Error> {
    let body: TicketBodyToRead = serde_json::from_str(text)?;
    let mut session = body.q.into_session()?;
    session.join_seats = body.j;
    let rated = |(rating, deviation): (Option<f64>, Option<f64>)| PlayerRating {
        rating: rating.unwrap_or(f64::NAN),
        deviation: deviation.unwrap_or(f64::NAN),
    };
    Ok(Ticket {
        id: TicketId::from_bytes([0; 16]),
        set_id: SetId::default(),
        subject: body.s.map(HexKey::user_key),
        entered_at: UnixMs::default(),
        session,
        player_ratings: body.t.into_iter().map(rated).collect(),
        blocked_users: body.b.into_iter().map(HexKey::user_key).collect(),
        exclusive: body.a,
    })
}

type MatchPlayerBody = (HexKey, HexKey, Option<u16>, Option<bool>);

#[derive(Serialize, Deserialize)]
struct MatchBody {
    h: u32,
    #[serde(default)]
    m: Vec<(HexKey, u64, u16, Vec<MatchPlayerBody>)>,
    q: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<HexKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    d: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    u: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<(HexKey, HexKey)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<HexKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<u8>,
    #[serde(default, skip_serializing_if = "is_false")]
    n: bool,
}

/// How matches end, by the number that stands for it.
const MATCH_END_REASONS: [MatchEndReason; 7] = [
    MatchEndReason::Played,
    MatchEndReason::TimedOut,
    MatchEndReason::Declined,
    MatchEndReason::NotAcceptedInTime,
    MatchEndReason::NoServer,
    MatchEndReason::ServerFailed,
    MatchEndReason::Cancelled,
];

/// A match's stage as a column has it, and the text to keep.
pub(super) fn encode_match(play: &Match) -> (i64, String) {
    let seat = |seat: &MatchPlayer| {
        (HexKey::from_user_key(seat.user), HexKey::from_user_key(seat.client), seat.role, seat.accepted)
    };
    let member = |it: &MatchTicket| {
        (HexKey(*it.ticket_id.as_bytes()), it.entered_at.0, it.team, it.players.iter().map(seat).collect::<Vec<_>>())
    };
    let mut body = MatchBody {
        h: play.ruleset_hash.0,
        m: play.tickets.iter().map(member).collect(),
        q: Some(play.quality),
        r: play.region.clone(),
        b: play.backfilled_session.map(|id| HexKey(*id.as_bytes())),
        d: None,
        e: None,
        u: None,
        v: None,
        c: None,
        p: None,
        o: None,
        n: false,
    };
    let stage = match &play.stage {
        MatchStage::ReadyCheck { deadline } => {
            body.d = Some(deadline.0);
            0
        }
        MatchStage::Placing { deadline } => {
            body.d = Some(deadline.0);
            1
        }
        MatchStage::Playing { assignment: place, started_at: began, times_out_at: until } => {
            (body.e, body.u) = (Some(began.0), Some(until.0));
            body.set_assignment(place);
            2
        }
        MatchStage::Ended { end_reason: outcome, began, place, purge_at: _ } => {
            body.o = MATCH_END_REASONS.iter().position(|known| known == outcome).and_then(|at| u8::try_from(at).ok());
            body.e = began.map(|began| began.0);
            if let Some(place) = place {
                body.set_assignment(place);
                body.n = *place == Assignment::Unhosted;
            }
            3
        }
    };
    (stage, to_json_text(&body))
}

impl MatchBody {
    fn set_assignment(&mut self, place: &Assignment) {
        match place {
            Assignment::GameServer { advertisement, reservation, connect_data } => {
                self.v = Some((HexKey(*advertisement.as_bytes()), HexKey(*reservation.as_bytes())));
                self.c = Some(connect_data.iter().map(|byte| format!("{byte:02x}")).collect());
            }
            Assignment::PeerHost { host } => self.p = Some(HexKey::from_user_key(*host)),
            Assignment::Unhosted => {}
        }
    }

    /// The place, if it is anywhere.
    fn take_assignment(&mut self) -> Result<Option<Assignment>, serde_json::Error> {
        Ok(match (self.v.take(), self.p.take()) {
            (Some((advertisement, reservation)), _) => Some(Assignment::GameServer {
                advertisement: AdvertisementId::from_bytes(advertisement.0),
                reservation: ReservationId::from_bytes(reservation.0),
                connect_data: decode_hex(&self.c.take().unwrap_or_default())
                    .ok_or_else(|| serde_json::Error::custom("connect data is not in hexadecimal digits"))?,
            }),
            (None, Some(host)) => Some(Assignment::PeerHost { host: host.user_key() }),
            (None, None) => None,
        })
    }
}

/// The match in a text, of the stage and to be forgotten when its columns say so, but for what else has a column of its own:
/// the caller puts that in.
pub(super) fn decode_match(text: &str, stage: i64, forget_at: Option<UnixMs>) -> Result<Match, serde_json::Error> {
    let mut body: MatchBody = serde_json::from_str(text)?;
    let seat = |(user, player, role, answer): MatchPlayerBody| MatchPlayer {
        user: user.user_key(),
        client: player.user_key(),
        role,
        accepted: answer,
    };
    let member = |(ticket, entered, team, seats): (HexKey, u64, u16, Vec<MatchPlayerBody>)| MatchTicket {
        ticket_id: TicketId::from_bytes(ticket.0),
        entered_at: UnixMs(entered),
        team,
        players: seats.into_iter().map(seat).collect(),
    };
    let wanted = |key, moment: Option<u64>| moment.map(UnixMs).ok_or_else(|| serde_json::Error::missing_field(key));
    let stage = match stage {
        0 => MatchStage::ReadyCheck { deadline: wanted("d", body.d)? },
        1 => MatchStage::Placing { deadline: wanted("d", body.d)? },
        2 => MatchStage::Playing {
            assignment: body.take_assignment()?.unwrap_or(Assignment::Unhosted),
            started_at: wanted("e", body.e)?,
            times_out_at: wanted("u", body.u)?,
        },
        3 => MatchStage::Ended {
            end_reason: body
                .o
                .and_then(|at| MATCH_END_REASONS.get(usize::from(at)).copied())
                .ok_or_else(|| serde_json::Error::custom("no such outcome"))?,
            began: body.e.map(UnixMs),
            place: body.take_assignment()?.or(body.n.then_some(Assignment::Unhosted)),
            purge_at: forget_at.ok_or_else(|| serde_json::Error::custom("it is over and never to be forgotten"))?,
        },
        other => return Err(serde_json::Error::custom(format_args!("{other} is no stage"))),
    };
    Ok(Match {
        id: MatchId::from_bytes([0; 16]),
        set_id: SetId::default(),
        silo: SiloId::default(),
        ruleset_hash: RulesetHash(body.h),
        proposed_at: UnixMs::default(),
        version: 0,
        stage,
        tickets: body.m.into_iter().map(member).collect(),
        quality: body.q.unwrap_or(f64::NAN),
        region: body.r,
        backfilled_session: body.b.map(|id| AdvertisementId::from_bytes(id.0)),
    })
}

/// The bytes that hexadecimal digits stand for.
fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

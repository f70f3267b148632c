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
use crate::domain::life::{Match, Member, Outcome, Place, Seat, Stage};
use crate::domain::queue::ticket::{Rated, Ticket};
use crate::domain::time::UnixMs;
use crate::store::rows::body::{Body, Each, Name, Said, text};

#[derive(Deserialize)]
struct TicketBody {
    s: Option<Name>,
    q: Body,
    #[serde(default)]
    j: u16,
    #[serde(default)]
    t: Vec<(Option<f64>, Option<f64>)>,
    #[serde(default)]
    b: Vec<Name>,
    #[serde(default)]
    a: bool,
}

#[derive(Serialize)]
struct TicketSaid<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<Name>,
    q: Said<'a>,
    #[serde(skip_serializing_if = "is_zero")]
    j: u16,
    #[serde(skip_serializing_if = "Each::is_empty")]
    t: Each<'a, Rated, (f64, f64)>,
    #[serde(skip_serializing_if = "Each::is_empty")]
    b: Each<'a, UserKey, Name>,
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
    text(&TicketSaid {
        s: ticket.subject.map(Name::of),
        q: Said::of(&ticket.session),
        j: ticket.session.join_seats,
        t: Each(&ticket.ratings, |it| (it.rating, it.deviation)),
        b: Each(&ticket.blocked, |it| Name::of(*it)),
        a: ticket.alone,
    })
}

/// The ticket in a text, but for what has a column of its own: the caller puts that in.
pub(super) fn decode_ticket(text: &str) -> Result<Ticket, serde_json::Error> {
    let body: TicketBody = serde_json::from_str(text)?;
    let mut session = body.q.session()?;
    session.join_seats = body.j;
    let rated = |(rating, deviation): (Option<f64>, Option<f64>)| Rated {
        rating: rating.unwrap_or(f64::NAN),
        deviation: deviation.unwrap_or(f64::NAN),
    };
    Ok(Ticket {
        id: TicketId::from_bytes([0; 16]),
        set_id: SetId::default(),
        subject: body.s.map(Name::user),
        entered: UnixMs::default(),
        session,
        ratings: body.t.into_iter().map(rated).collect(),
        blocked: body.b.into_iter().map(Name::user).collect(),
        alone: body.a,
    })
}

type SeatBody = (Name, Name, Option<u16>, Option<bool>);

#[derive(Serialize, Deserialize)]
struct MatchBody {
    h: u32,
    #[serde(default)]
    m: Vec<(Name, u64, u16, Vec<SeatBody>)>,
    q: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    d: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    u: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<(Name, Name)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<u8>,
    #[serde(default, skip_serializing_if = "is_false")]
    n: bool,
}

/// How matches end, by the number that stands for it.
const OUTCOMES: [Outcome; 7] = [
    Outcome::Played,
    Outcome::Lapsed,
    Outcome::Declined,
    Outcome::Unanswered,
    Outcome::NoServer,
    Outcome::ServerFailed,
    Outcome::Cancelled,
];

/// A match's stage as a column has it, and the text to keep.
pub(super) fn encode_match(play: &Match) -> (i64, String) {
    let seat = |seat: &Seat| (Name::of(seat.user), Name::of(seat.player), seat.role, seat.answer);
    let member = |it: &Member| {
        (Name(*it.ticket.as_bytes()), it.entered.0, it.team, it.players.iter().map(seat).collect::<Vec<_>>())
    };
    let mut body = MatchBody {
        h: play.hash.0,
        m: play.members.iter().map(member).collect(),
        q: Some(play.quality),
        r: play.region.clone(),
        b: play.backfills.map(|id| Name(*id.as_bytes())),
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
        Stage::ReadyCheck { deadline } => {
            body.d = Some(deadline.0);
            0
        }
        Stage::Placing { deadline } => {
            body.d = Some(deadline.0);
            1
        }
        Stage::Playing { place, began, until } => {
            (body.e, body.u) = (Some(began.0), Some(until.0));
            body.put_place(place);
            2
        }
        Stage::Over { outcome, began, place, forget_at: _ } => {
            body.o = OUTCOMES.iter().position(|known| known == outcome).and_then(|at| u8::try_from(at).ok());
            body.e = began.map(|began| began.0);
            if let Some(place) = place {
                body.put_place(place);
                body.n = *place == Place::Nowhere;
            }
            3
        }
    };
    (stage, text(&body))
}

impl MatchBody {
    fn put_place(&mut self, place: &Place) {
        match place {
            Place::Server { advertisement, reservation, connect_data } => {
                self.v = Some((Name(*advertisement.as_bytes()), Name(*reservation.as_bytes())));
                self.c = Some(connect_data.iter().map(|byte| format!("{byte:02x}")).collect());
            }
            Place::Peer { host } => self.p = Some(Name::of(*host)),
            Place::Nowhere => {}
        }
    }

    /// The place, if it is anywhere.
    fn take_place(&mut self) -> Result<Option<Place>, serde_json::Error> {
        Ok(match (self.v.take(), self.p.take()) {
            (Some((advertisement, reservation)), _) => Some(Place::Server {
                advertisement: AdvertisementId::from_bytes(advertisement.0),
                reservation: ReservationId::from_bytes(reservation.0),
                connect_data: bytes(&self.c.take().unwrap_or_default())
                    .ok_or_else(|| serde_json::Error::custom("connect data is not in hexadecimal digits"))?,
            }),
            (None, Some(host)) => Some(Place::Peer { host: host.user() }),
            (None, None) => None,
        })
    }
}

/// The match in a text, of the stage and to be forgotten when its columns say so, but for what else has a column of its own:
/// the caller puts that in.
pub(super) fn decode_match(text: &str, stage: i64, forget_at: Option<UnixMs>) -> Result<Match, serde_json::Error> {
    let mut body: MatchBody = serde_json::from_str(text)?;
    let seat = |(user, player, role, answer): SeatBody| Seat { user: user.user(), player: player.user(), role, answer };
    let member = |(ticket, entered, team, seats): (Name, u64, u16, Vec<SeatBody>)| Member {
        ticket: TicketId::from_bytes(ticket.0),
        entered: UnixMs(entered),
        team,
        players: seats.into_iter().map(seat).collect(),
    };
    let wanted = |key, moment: Option<u64>| moment.map(UnixMs).ok_or_else(|| serde_json::Error::missing_field(key));
    let stage = match stage {
        0 => Stage::ReadyCheck { deadline: wanted("d", body.d)? },
        1 => Stage::Placing { deadline: wanted("d", body.d)? },
        2 => Stage::Playing {
            place: body.take_place()?.unwrap_or(Place::Nowhere),
            began: wanted("e", body.e)?,
            until: wanted("u", body.u)?,
        },
        3 => Stage::Over {
            outcome: body
                .o
                .and_then(|at| OUTCOMES.get(usize::from(at)).copied())
                .ok_or_else(|| serde_json::Error::custom("no such outcome"))?,
            began: body.e.map(UnixMs),
            place: body.take_place()?.or(body.n.then_some(Place::Nowhere)),
            forget_at: forget_at.ok_or_else(|| serde_json::Error::custom("it is over and never to be forgotten"))?,
        },
        other => return Err(serde_json::Error::custom(format_args!("{other} is no stage"))),
    };
    Ok(Match {
        id: MatchId::from_bytes([0; 16]),
        set_id: SetId::default(),
        silo: SiloId::default(),
        hash: RulesetHash(body.h),
        proposed: UnixMs::default(),
        edition: 0,
        stage,
        members: body.m.into_iter().map(member).collect(),
        quality: body.q.unwrap_or(f64::NAN),
        region: body.r,
        backfills: body.b.map(|id| AdvertisementId::from_bytes(id.0)),
    })
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

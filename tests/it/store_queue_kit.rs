//! Small things to put into a store's queues, so that the tests of them read as what they are about.

use std::sync::Arc;

use fireteam::domain::attribute::{Origin, Value};
use fireteam::domain::id::{AdvertisementId, MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use fireteam::domain::life::{Fate, Match, Member, Outcome, Seat, Stage};
use fireteam::domain::locality::Locality;
use fireteam::domain::queue::ticket::{Ending, Rated, Ticket};
use fireteam::domain::result::Satisfaction;
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::{Ladder, QueueWrite, RatingRow, StoredTicket, TicketState};

/// A silo that is negative where numbers have signs.
pub(crate) const SILO: SiloId = SiloId(u64::MAX - 1);

/// The ticket called `n`.
pub(crate) fn ticket_id(n: u32) -> TicketId {
    TicketId::from_bytes(name(5, n))
}

/// The match called `n`.
pub(crate) fn match_id(n: u32) -> MatchId {
    MatchId::from_bytes(name(6, n))
}

/// The user called `n`.
pub(crate) fn user(n: u32) -> UserKey {
    UserKey::from_bytes(name(7, n))
}

fn name(kind: u8, n: u32) -> [u8; 16] {
    let mut bytes = [kind; 16];
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// Ticket `n` of these users in the queue of set `set`, with something in every field.
pub(crate) fn ticket(n: u32, set: u32, users: &[u32]) -> Ticket {
    let player = |&n: &u32| Player { user: user(n), player: user(n + 1_000), skill: Some(0.1 + f64::from(n)) };
    let session = Session {
        silo: SILO,
        party_sizes: vec![users.len() as u8],
        players: users.iter().map(player).collect(),
        nat_type: Some(2),
        game_in_progress: Some(false),
        big_party_count: Some(-1),
        join_seats: 3,
        locality: Some(Locality { x: 0.1, y: -0.2, z: 4000.0 }),
        attributes: vec![("mode".into(), Value::texts(vec!["b".into(), "a".into()]))],
        regions: vec![RegionLatency { region: "eu".into(), round_trip_ms: 12.3 }].into(),
        origin: Origin::Server,
    };
    Ticket {
        id: ticket_id(n),
        set_id: SetId(set),
        subject: Some(user(9)),
        entered: UnixMs(u64::from(n)),
        session,
        ratings: users.iter().map(|&n| Rated { rating: 1.0 / 3.0 + f64::from(n), deviation: -0.0 }).collect(),
        blocked: vec![user(77), user(78)],
        alone: false,
    }
}

/// It begins to wait; its payload is of its users and set.
pub(crate) fn enter(ticket: Ticket, expires: u64, now: u64) -> QueueWrite {
    let payload = [(ticket.session.players.len() as u32 + 16 * ticket.set_id.0) as u8; 16];
    QueueWrite::Enter { ticket: Arc::new(ticket), expires: UnixMs(expires), payload, now: UnixMs(now) }
}

/// It goes on waiting.
pub(crate) fn beat(n: u32, expires: u64) -> QueueWrite {
    QueueWrite::Beat { id: ticket_id(n), expires: UnixMs(expires), now: UnixMs(0) }
}

/// It ends.
pub(crate) fn end(n: u32, how: Ending, forget_at: u64, now: u64) -> QueueWrite {
    QueueWrite::End { id: ticket_id(n), how, forget_at: UnixMs(forget_at), now: UnixMs(now) }
}

/// Match `n` of these tickets with these users, agreed to by nobody yet.
pub(crate) fn play(n: u32, set: u32, members: &[(u32, &[u32])]) -> Match {
    let seat = |&n: &u32| Seat { user: user(n), player: user(n + 1_000), role: Some(1), answer: None };
    let member = |(at, (ticket, users)): (usize, &(u32, &[u32]))| Member {
        ticket: ticket_id(*ticket),
        entered: UnixMs(u64::from(*ticket)),
        team: at as u16,
        players: users.iter().map(seat).collect(),
    };
    Match {
        id: match_id(n),
        set_id: SetId(set),
        silo: SILO,
        hash: RulesetHash(u32::MAX),
        proposed: UnixMs(5),
        edition: 1,
        stage: Stage::ReadyCheck { deadline: UnixMs(40) },
        members: members.iter().enumerate().map(member).collect(),
        quality: -1.0 / 3.0,
        region: Some("eu".into()),
        backfills: Some(AdvertisementId::from_bytes([8; 16])),
    }
}

/// It is proposed.
pub(crate) fn propose(play: Match, now: u64) -> QueueWrite {
    QueueWrite::Propose { proposed: Arc::new(play), now: UnixMs(now) }
}

/// The next edition of a match, at another stage.
pub(crate) fn then(play: &Match, stage: Stage) -> Match {
    Match { edition: play.edition + 1, stage, ..play.clone() }
}

/// It did not come about; forgotten at 90.
pub(crate) fn over(outcome: Outcome) -> Stage {
    Stage::Over { outcome, began: None, place: None, forget_at: UnixMs(90) }
}

/// What happens with a match besides its next edition. Tickets that end are forgotten at 80.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fates {
    pub(crate) returns: Vec<(u32, u64)>,
    pub(crate) ends: Vec<(u32, Ending)>,
    pub(crate) elsewhere: Vec<u32>,
    pub(crate) punished: Vec<u32>,
    pub(crate) now: u64,
}

/// It goes on.
pub(crate) fn move_on(next: Match, fates: &Fates) -> QueueWrite {
    let returns = fates.returns.iter().map(|(n, expires)| (ticket_id(*n), Fate::Returns, UnixMs(*expires)));
    let ends = fates.ends.iter().map(|(n, how)| (ticket_id(*n), Fate::Ends(*how), UnixMs(0)));
    QueueWrite::Move {
        next: Arc::new(next),
        fates: returns.chain(ends).collect(),
        elsewhere: fates.elsewhere.iter().copied().map(ticket_id).collect(),
        punished: fates.punished.iter().copied().map(user).collect(),
        ladder: Ladder { penalties_ms: [10, 20].into(), reset_after_ms: 30 },
        forget_at: UnixMs(80),
        now: UnixMs(fates.now),
    }
}

/// A rating of this user.
pub(crate) fn rating(n: u32, set: u32, rating: f64) -> RatingRow {
    RatingRow {
        user: user(n),
        set_id: SetId(set),
        rated: Rated { rating, deviation: 0.1 },
        volatility: 0.06,
        matches: n,
        last: UnixMs(7),
        streak: 0,
        satisfaction: Satisfaction::default(),
        played: 0,
    }
}

/// As a ticket that was entered a moment ago is stored.
pub(crate) fn fresh(entered: &QueueWrite) -> StoredTicket {
    let QueueWrite::Enter { ticket, expires, payload, .. } = entered else { panic!("it enters") };
    let ticket = Arc::clone(ticket);
    StoredTicket { ticket, state: TicketState::Waiting, expires: *expires, edition: 1, payload: *payload }
}

//! Small things to put into a store's queues, so that the tests of them read as what they are about.

use std::sync::Arc;

use fireteam::domain::attribute::{AttributeValue, ValueOrigin};
use fireteam::domain::id::{AdvertisementId, MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use fireteam::domain::lifecycle::{Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket, TicketFate};
use fireteam::domain::locality::Locality;
use fireteam::domain::match_result::SatisfactionStats;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket, TicketEndReason};
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::{PenaltySchedule, QueueWrite, RatingRow, StoredTicket, TicketState};

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
    let player =
        |&n: &u32| Player { user: user(n), client_key: user(n + 1_000), stated_skill: Some(0.1 + f64::from(n)) };
    let session = Session {
        silo: SILO,
        party_sizes: vec![users.len() as u8],
        players: users.iter().map(player).collect(),
        nat_type: Some(2),
        game_in_progress: Some(false),
        big_party_count: Some(-1),
        join_seats: 3,
        locality: Some(Locality { x: 0.1, y: -0.2, z: 4000.0 }),
        attributes: vec![("mode".into(), AttributeValue::string_list(vec!["b".into(), "a".into()]))],
        region_latencies: vec![RegionLatency { region: "eu".into(), round_trip_ms: 12.3 }].into(),
        origin: ValueOrigin::GameServer,
    };
    Ticket {
        id: ticket_id(n),
        set_id: SetId(set),
        subject: Some(user(9)),
        entered_at: UnixMs(u64::from(n)),
        session,
        player_ratings: users
            .iter()
            .map(|&n| PlayerRating { rating: 1.0 / 3.0 + f64::from(n), deviation: -0.0 })
            .collect(),
        blocked_users: vec![user(77), user(78)],
        exclusive: false,
    }
}

/// It begins to wait; its payload is of its users and set.
pub(crate) fn enter(ticket: Ticket, expires: u64, now: u64) -> QueueWrite {
    let payload = [(ticket.session.players.len() as u32 + 16 * ticket.set_id.0) as u8; 16];
    QueueWrite::EnterQueue {
        ticket: Arc::new(ticket),
        expires_at: UnixMs(expires),
        request_digest: payload,
        now: UnixMs(now),
    }
}

/// It goes on waiting.
pub(crate) fn beat(n: u32, expires: u64) -> QueueWrite {
    QueueWrite::Heartbeat { ticket_id: ticket_id(n), expires_at: UnixMs(expires), now: UnixMs(0) }
}

/// It ends.
pub(crate) fn end(n: u32, how: TicketEndReason, forget_at: u64, now: u64) -> QueueWrite {
    QueueWrite::EndTicket { ticket_id: ticket_id(n), end_reason: how, purge_at: UnixMs(forget_at), now: UnixMs(now) }
}

/// Match `n` of these tickets with these users, agreed to by nobody yet.
pub(crate) fn play(n: u32, set: u32, members: &[(u32, &[u32])]) -> Match {
    let seat = |&n: &u32| MatchPlayer { user: user(n), client: user(n + 1_000), role: Some(1), accepted: None };
    let member = |(at, (ticket, users)): (usize, &(u32, &[u32]))| MatchTicket {
        ticket_id: ticket_id(*ticket),
        entered_at: UnixMs(u64::from(*ticket)),
        team: at as u16,
        players: users.iter().map(seat).collect(),
    };
    Match {
        id: match_id(n),
        set_id: SetId(set),
        silo: SILO,
        ruleset_hash: RulesetHash(u32::MAX),
        proposed_at: UnixMs(5),
        version: 1,
        stage: MatchStage::ReadyCheck { deadline: UnixMs(40) },
        tickets: members.iter().enumerate().map(member).collect(),
        quality: -1.0 / 3.0,
        region: Some("eu".into()),
        backfilled_session: Some(AdvertisementId::from_bytes([8; 16])),
    }
}

/// It is proposed.
pub(crate) fn propose(play: Match, now: u64) -> QueueWrite {
    QueueWrite::ProposeMatch { proposed: Arc::new(play), now: UnixMs(now) }
}

/// The next edition of a match, at another stage.
pub(crate) fn then(play: &Match, stage: MatchStage) -> Match {
    Match { version: play.version + 1, stage, ..play.clone() }
}

/// It did not come about; forgotten at 90.
pub(crate) fn over(outcome: MatchEndReason) -> MatchStage {
    MatchStage::Ended { end_reason: outcome, started_at: None, assignment: None, purge_at: UnixMs(90) }
}

/// What happens with a match besides its next edition. Tickets that end are forgotten at 80.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fates {
    pub(crate) returns: Vec<(u32, u64)>,
    pub(crate) ends: Vec<(u32, TicketEndReason)>,
    pub(crate) elsewhere: Vec<u32>,
    pub(crate) punished: Vec<u32>,
    pub(crate) now: u64,
}

/// It goes on.
pub(crate) fn move_on(next: Match, fates: &Fates) -> QueueWrite {
    let returns = fates.returns.iter().map(|(n, expires)| (ticket_id(*n), TicketFate::Requeued, UnixMs(*expires)));
    let ends = fates.ends.iter().map(|(n, how)| (ticket_id(*n), TicketFate::Ended(*how), UnixMs(0)));
    QueueWrite::TransitionMatch {
        updated_match: Arc::new(next),
        ticket_fates: returns.chain(ends).collect(),
        other_tickets: fates.elsewhere.iter().copied().map(ticket_id).collect(),
        penalized_users: fates.punished.iter().copied().map(user).collect(),
        penalty_schedule: PenaltySchedule { cooldowns_ms: [10, 20].into(), reset_after_ms: 30 },
        purge_at: UnixMs(80),
        now: UnixMs(fates.now),
    }
}

/// A rating of this user.
pub(crate) fn rating(n: u32, set: u32, rating: f64) -> RatingRow {
    RatingRow {
        user: user(n),
        set_id: SetId(set),
        rating: PlayerRating { rating, deviation: 0.1 },
        volatility: 0.06,
        match_count: n,
        last_match_at: UnixMs(7),
        streak: 0,
        satisfaction: SatisfactionStats::default(),
        active_periods: 0,
    }
}

/// As a ticket that was entered a moment ago is stored.
pub(crate) fn fresh(entered: &QueueWrite) -> StoredTicket {
    let QueueWrite::EnterQueue { ticket, expires_at: expires, request_digest: payload, .. } = entered else {
        panic!("it enters")
    };
    let ticket = Arc::clone(ticket);
    StoredTicket { ticket, state: TicketState::Waiting, expires_at: *expires, version: 1, request_digest: *payload }
}

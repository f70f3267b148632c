//! Builders of tickets, matches and writes for store tests of queues.

use std::sync::Arc;

use fireteam::domain::attribute::{AttributeValue, ValueOrigin};
use fireteam::domain::chosen_value::ChosenValue;
use fireteam::domain::id::{
    AdvertisementId, MatchId, RatingKey, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey,
};
use fireteam::domain::latency::published_vector::{LeastPathExcess, PublishedFloor, PublishedVector};
use fireteam::domain::lifecycle::session_start::SessionMatchStartByHost;
use fireteam::domain::lifecycle::side_reports::SideReports;
use fireteam::domain::lifecycle::{
    Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket, TicketFate,
};
use fireteam::domain::locality::Locality;
use fireteam::domain::match_result::UserSatisfactionStatistics;
use fireteam::domain::queue::seat_vectors::SeatBeaconVectors;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket, TicketEndReason};
use fireteam::domain::ruleset::probing::LatencyTrust;
use fireteam::domain::session::{Player, RegionLatency, Session, SessionDetails};
use fireteam::domain::time::UnixMs;
use fireteam::domain::wish::{AcceptedValues, Wish, WishStep};
use fireteam::store::queues::{QueueWrite, RatingRow, ReadyCheckCooldowns, StoredTicket, TicketState};

/// A silo id whose signed form is negative.
pub(crate) const SILO: SiloId = SiloId(u64::MAX - 1);

/// Ticket id `n`.
pub(crate) fn ticket_id(n: u32) -> TicketId {
    TicketId::from_bytes(id_bytes(5, n))
}

/// Match id `n`.
pub(crate) fn match_id(n: u32) -> MatchId {
    MatchId::from_bytes(id_bytes(6, n))
}

/// User key `n`.
pub(crate) fn user(n: u32) -> UserKey {
    UserKey::from_bytes(id_bytes(7, n))
}

fn id_bytes(kind: u8, n: u32) -> [u8; 16] {
    let mut bytes = [kind; 16];
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// Ticket `n` of these users in the queue of set `set`, with a value in every field.
pub(crate) fn ticket(n: u32, set: u32, users: &[u32]) -> Ticket {
    let player = |&n: &u32| Player {
        user: user(n),
        client_key: user(n + 1_000),
        stated_skill: Some(0.1 + f64::from(n)),
        team: None,
        details: None,
    };
    let accepted = AcceptedValues::Numbers { min: Some(-0.5), max: None };
    let steps = vec![WishStep { start_ms: 0, accepted }, WishStep { start_ms: 9, accepted: AcceptedValues::Any }];
    let wish = Wish::new("mode", true, steps).expect("each step accepts more");
    let session = Session {
        silo: SILO,
        party_sizes: [users.len() as u8].into(),
        players: users.iter().map(player).collect(),
        nat_type: Some(2),
        game_in_progress: Some(false),
        big_party_count: Some(-1),
        offered_seats: 3,
        locality: Some(Locality { x: 0.1, y: -0.2, z: 4000.0 }),
        attributes: vec![("mode".into(), AttributeValue::from_string_list(vec!["b".into(), "a".into()]))],
        region_latencies: vec![RegionLatency { region: "eu".into(), round_trip_ms: 12.3 }].into(),
        value_origin: ValueOrigin::GameServer,
        details: SessionDetails::from_wishes(vec![wish]),
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
        exact_round_trips_ms: None,
        blocked_users: vec![user(77), user(78)],
        rating_digest_key: None,
        excludes_other_tickets: false,
        self_answering_users: Vec::new(),
    }
}

/// Enters the queue without a limit on the users' tickets.
pub(crate) fn enter(ticket: Ticket, expires: u64, now: u64) -> QueueWrite {
    enter_limited(ticket, None, expires, now)
}

/// Enters the queue. The request digest depends on the number of users and the set.
pub(crate) fn enter_limited(ticket: Ticket, max_tickets_per_user: Option<u32>, expires: u64, now: u64) -> QueueWrite {
    let digest = [(ticket.session.players.len() as u32 + 16 * ticket.set_id.0) as u8; 16];
    QueueWrite::EnterQueue {
        ticket: Arc::new(ticket),
        seat_vectors: SeatBeaconVectors::default(),
        expires_at: UnixMs(expires),
        request_digest: digest,
        max_tickets_per_user,
        caller_user: None,
        consents: Vec::new(),
        now: UnixMs(now),
    }
}

/// Vector with one floor of `steps` to beacon 7.
pub(crate) fn published_vector(steps: u16) -> PublishedVector {
    let floors = vec![PublishedFloor { beacon_id: 7, steps }];
    let excess = LeastPathExcess { near_ms: 1.5, light_ms: 2.5 };
    PublishedVector::new(floors, UnixMs(5), LatencyTrust::Proven, excess).expect("one floor")
}

/// A heartbeat of ticket `n`.
pub(crate) fn heartbeat(n: u32, expires: u64) -> QueueWrite {
    QueueWrite::Heartbeat { ticket_id: ticket_id(n), expires_at: UnixMs(expires), now: UnixMs(0) }
}

/// Ends ticket `n`.
pub(crate) fn end_ticket(n: u32, how: TicketEndReason, purge_at: u64, now: u64) -> QueueWrite {
    QueueWrite::EndTicket { ticket_id: ticket_id(n), end_reason: how, purge_at: UnixMs(purge_at), now: UnixMs(now) }
}

/// Match `n` of these tickets and users; no player has accepted yet.
pub(crate) fn new_match(n: u32, set: u32, members: &[(u32, &[u32])]) -> Match {
    let player =
        |&n: &u32| MatchPlayer { user: user(n), client: user(n + 1_000), role: Some(1), accepted: None, left_at: None };
    let match_ticket = |(at, (ticket, users)): (usize, &(u32, &[u32]))| MatchTicket {
        ticket_id: ticket_id(*ticket),
        entered_at: UnixMs(u64::from(*ticket)),
        team: at as u16,
        players: users.iter().map(player).collect(),
    };
    Match {
        id: match_id(n),
        set_id: SetId(set),
        silo: SILO,
        ruleset_hash: RulesetHash(u32::MAX),
        proposed_at: UnixMs(5),
        version: 1,
        stage: MatchStage::ReadyCheck { deadline: UnixMs(40) },
        tickets: members.iter().enumerate().map(match_ticket).collect(),
        quality: -1.0 / 3.0,
        region: Some("eu".into()),
        backfilled_session: Some(AdvertisementId::from_bytes([8; 16])),
        chosen_values: [ChosenValue { attribute: "maps".into(), value: "bay".into() }].into(),
        bots_by_team: [0, 2].into(),
        worst_pair: None,
        session_match_start_by_host: None,
        servers_that_did_not_confirm: Vec::new(),
        side_reports: SideReports::default(),
        kept_skills_of_erased_users: Vec::new(),
    }
}

/// Proposes the match.
pub(crate) fn propose(found: Match, now: u64) -> QueueWrite {
    QueueWrite::ProposeMatch { proposed: Arc::new(found), now: UnixMs(now) }
}

/// Starts match `n` of a session, with these tickets of set 1; it ends these other tickets.
pub(crate) fn start_match(n: u32, members: &[(u32, &[u32])], other_tickets: &[u32]) -> QueueWrite {
    let session_start = SessionMatchStartByHost {
        advertisement: AdvertisementId::from_bytes([8; 16]),
        reservations: members.iter().map(|(n, _)| (n % 2 == 0).then_some(ReservationId::from_bytes([9; 16]))).collect(),
        request_digest: [7; 16],
    };
    let stage = MatchStage::Playing {
        assignment: Assignment::GameServer {
            advertisement: AdvertisementId::from_bytes([8; 16]),
            reservation: None,
            connect_data: vec![1, 2],
        },
        started_at: UnixMs(5),
        times_out_at: UnixMs(70),
        host_lost_at: Some(UnixMs(60)),
    };
    let backfilled_session = None;
    let started = Match {
        stage,
        session_match_start_by_host: Some(session_start),
        backfilled_session,
        ..new_match(n, 1, members)
    };
    QueueWrite::StartSessionMatch {
        started: Arc::new(started),
        tickets: members.iter().map(|(n, users)| Arc::new(ticket(*n, 1, users))).collect(),
        other_tickets: other_tickets.iter().copied().map(ticket_id).collect(),
        consents: Vec::new(),
        expires_at: UnixMs(30),
        purge_at: UnixMs(80),
    }
}

/// The next version of a match, at another stage.
pub(crate) fn next_version(found: &Match, stage: MatchStage) -> Match {
    Match { version: found.version + 1, stage, ..found.clone() }
}

/// A match that ended before it was played; purged at 90.
pub(crate) fn ended_stage(outcome: MatchEndReason) -> MatchStage {
    MatchStage::Ended { end_reason: outcome, started_at: None, assignment: None, purge_at: UnixMs(90) }
}

/// Effects of a transition besides the match's next version. Tickets that end are purged at 80.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransitionEffects {
    pub(crate) requeued: Vec<(u32, u64)>,
    pub(crate) ends: Vec<(u32, TicketEndReason)>,
    pub(crate) matched_elsewhere: Vec<u32>,
    pub(crate) penalized: Vec<u32>,
    pub(crate) now: u64,
}

/// Transitions the match.
pub(crate) fn transition(next: Match, fates: &TransitionEffects) -> QueueWrite {
    let requeued = fates.requeued.iter().map(|(n, expires)| (ticket_id(*n), TicketFate::Requeued, UnixMs(*expires)));
    let ends = fates.ends.iter().map(|(n, how)| (ticket_id(*n), TicketFate::Ended(*how), UnixMs(0)));
    QueueWrite::TransitionMatch {
        updated_match: Arc::new(next),
        ticket_fates: requeued.chain(ends).collect(),
        other_tickets: fates.matched_elsewhere.iter().copied().map(ticket_id).collect(),
        penalized_users: fates.penalized.iter().copied().map(user).collect(),
        penalty_schedule: ReadyCheckCooldowns { cooldowns_ms: [10, 20].into(), reset_after_ms: 30 },
        leaver_rating: None,
        purge_at: UnixMs(80),
        now: UnixMs(fates.now),
    }
}

/// Key of the ratings of set `set` on its first scale.
pub(crate) fn first_scale(set: u32) -> RatingKey {
    RatingKey::of_set_on_first_scale(SetId(set))
}

/// A rating of user `n` on the first scale of set `set`.
pub(crate) fn rating(n: u32, set: u32, rating: f64) -> RatingRow {
    RatingRow {
        user: user(n),
        key: first_scale(set),
        rating: PlayerRating { rating, deviation: 0.1 },
        volatility: 0.06,
        rated_match_count: n,
        last_match_at: UnixMs(7),
        streak: 0,
        satisfaction: UserSatisfactionStatistics::default(),
        last_match_active_period: 0,
    }
}

/// The stored form of a ticket that has just entered.
pub(crate) fn stored_ticket(entered: &QueueWrite) -> StoredTicket {
    let QueueWrite::EnterQueue { ticket, seat_vectors, expires_at: expires, request_digest: digest, .. } = entered
    else {
        panic!("an EnterQueue write")
    };
    let (ticket, seat_vectors) = (Arc::clone(ticket), seat_vectors.clone());
    let (state, expires_at, request_digest) = (TicketState::Waiting, *expires, *digest);
    StoredTicket { ticket, state, expires_at, version: 1, request_digest, ready_check_delivered_mask: 0, seat_vectors }
}

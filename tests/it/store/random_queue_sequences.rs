//! Random sequences of queue writes: every store gives the results of the model (R23), and no user is in two matches or
//! in two tickets of a queue (R1). `SCALE` multiplies the number of sequences; at 40 they have a million writes.

use std::sync::Arc;

use fireteam::domain::block_list::BlockListChange;
use fireteam::domain::id::{ConsentId, MatchId, RatingKey, RulesetHash, SetId, TicketId, UserKey};
use fireteam::domain::lifecycle::{
    Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket, TicketFate,
};
use fireteam::domain::match_result::{MatchForecast, ResultReport, SideRank};
use fireteam::domain::queue::seat_vectors::{SeatBeaconVectors, SeatIndex};
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::ruleset::rating::scale::KeyedRatingSpec;
use fireteam::domain::ruleset::rating::{
    DecayPeriodFilter, DisconnectPolicy, InactiveDeviationGrowth, RatingSpec, RatingSystem,
};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::queues::{
    ConsentConsumer, GrantedConsent, QueueWrite, RatingRow, ReadyCheckCooldowns, StoredTicket, TicketState,
};
use proptest::prelude::*;

use crate::store::queue_model::Model;
use crate::store::queue_rows::{
    end_ticket, enter_limited, heartbeat, match_id, new_match, next_version, propose, published_vector, rating,
    start_match, ticket, ticket_id, user,
};
use crate::store::sequence_runner::{Step, StoreModel, compare_memory, compare_postgres, compare_sqlite};

/// A random write; parts that depend on the current state are filled in later.
#[derive(Clone, Debug)]
pub(crate) enum RandomWrite {
    Complete(QueueWrite),
    /// Proposal of these tickets with their users.
    Propose {
        n: u32,
        tickets: Vec<u32>,
        now: u64,
    },
    Transition(RandomTransition),
    Result(RandomResult),
}

/// Result of match `n`, at its current version or another; every ticket is a side.
#[derive(Clone, Debug)]
pub(crate) struct RandomResult {
    n: u32,
    is_stale: bool,
    /// One per ticket, in their order.
    ranks: Vec<u32>,
    /// One per user, in the order of sides.
    left_early: Vec<bool>,
    ends: bool,
    system: u8,
    now: u64,
}

/// Transition of match `n`, from its current version or another.
#[derive(Clone, Debug)]
pub(crate) struct RandomTransition {
    n: u32,
    is_stale: bool,
    stage: MatchStage,
    /// One per ticket, in their order.
    fates: Vec<Option<TicketFate>>,
    /// A ticket that need not be in the match.
    extra_ticket: u32,
    drops_a_ticket: bool,
    /// Whether each player leaves, in the order of the tickets.
    leaves: Vec<bool>,
    other_tickets: Vec<u32>,
    penalized: Vec<u32>,
    now: u64,
}

const TICKETS: u32 = 7;
const USERS: u32 = 6;

fn stage() -> impl Strategy<Value = MatchStage> {
    prop_oneof![
        Just(MatchStage::Placing { deadline: UnixMs(50) }),
        Just(MatchStage::Playing {
            assignment: Assignment::Unhosted,
            started_at: UnixMs(1),
            times_out_at: UnixMs(70),
            host_lost_at: None
        }),
        (0..70_u64).prop_map(|at| MatchStage::Ended {
            end_reason: MatchEndReason::NoServer,
            started_at: None,
            assignment: None,
            purge_at: UnixMs(at)
        }),
    ]
}

fn end_reason() -> impl Strategy<Value = TicketEndReason> {
    prop::sample::select(vec![
        TicketEndReason::Left,
        TicketEndReason::Expired,
        TicketEndReason::NotAcceptedInTime,
        TicketEndReason::EndedByServer,
    ])
}

fn transition() -> impl Strategy<Value = RandomWrite> {
    let fate = prop_oneof![
        Just(None),
        Just(Some(TicketFate::Requeued)),
        end_reason().prop_map(|how| Some(TicketFate::Ended(how)))
    ];
    let users = (prop::collection::vec(0..TICKETS, 0..2), prop::collection::vec(0..USERS, 0..3));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    let fates = (prop::collection::vec(fate, 3), prop::collection::vec(prop::bool::weighted(0.2), 6));
    (0..5_u32, flags, stage(), fates, 0..TICKETS, users, 0..60_u64).prop_map(
        |(n, (is_stale, drops_a_ticket), stage, (fates, leaves), extra_ticket, (other_tickets, penalized), now)| {
            RandomWrite::Transition(RandomTransition {
                n,
                is_stale,
                stage,
                fates,
                extra_ticket,
                drops_a_ticket,
                leaves,
                other_tickets,
                penalized,
                now,
            })
        },
    )
}

fn result() -> impl Strategy<Value = RandomWrite> {
    let (ranks, left_early) = (prop::collection::vec(1..4_u32, 3), prop::collection::vec(prop::bool::weighted(0.2), 6));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.7));
    (0..5_u32, flags, ranks, left_early, 0..6_u8, 0..60_u64).prop_map(
        |(n, (is_stale, ends), ranks, left_early, system, now)| {
            RandomWrite::Result(RandomResult { n, is_stale, ranks, left_early, ends, system, now })
        },
    )
}

/// Few ids and few times, so that writes often conflict.
fn random_write() -> impl Strategy<Value = RandomWrite> {
    let (n, now) = (0..TICKETS, 0..60_u64);
    let users = prop::collection::vec(0..USERS, 1..3);
    let tickets = prop::collection::vec(0..TICKETS, 1..4);
    prop_oneof![
        8 => (n.clone(), 1..3_u32, users, prop::bool::weighted(0.15), now.clone(), 10..60_u64, prop::option::of(1..3_u32))
            .prop_map(|(n, set, users, alone, now, more, max)| {
                let entered = Ticket { excludes_other_tickets: alone, ..ticket(n, set, &users) };
                let mut write = enter_limited(entered, max, now + more, now);
                // Some of a player's client, with the consent of another player.
                if let QueueWrite::EnterQueue { caller_user, consents, .. } = &mut write && n % 2 == 1 {
                    *caller_user = Some(user(users[0]));
                    consents.extend(users.get(1).map(|other| consent((*other % 3) as u8)));
                }
                if let QueueWrite::EnterQueue { seat_vectors, .. } = &mut write && n % 3 == 0 {
                    *seat_vectors = SeatBeaconVectors::new([(SeatIndex(0), published_vector(1))]);
                }
                RandomWrite::Complete(write)
            }),
        2 => (n.clone(), now.clone()).prop_map(|(n, expires)| RandomWrite::Complete(heartbeat(n, expires))),
        2 => (n.clone(), 0..2_u8, 0..3_u16).prop_map(|(n, seat, steps)| {
            let (ticket_id, seat, vector) = (ticket_id(n), SeatIndex(seat), published_vector(steps));
            RandomWrite::Complete(QueueWrite::RenewBeaconVector { ticket_id, seat, vector })
        }),
        2 => (n.clone(), 0..5_u32, 0..8_u64).prop_map(|(n, m, acknowledged)| {
            let (ticket_id, match_id) = (ticket_id(n), match_id(m));
            RandomWrite::Complete(QueueWrite::RecordReadyCheckDelivery { ticket_id, match_id, acknowledged })
        }),
        2 => (0..3_u8, prop::collection::vec(0..3_u8, 0..3)).prop_map(|(by, consents)| {
            let (taken_by, consents) = (ConsentConsumer([by; 16]), consents.into_iter().map(consent).collect());
            RandomWrite::Complete(QueueWrite::TakeConsents { taken_by, consents })
        }),
        1 => (0..3_u8).prop_map(|n| RandomWrite::Complete(QueueWrite::RevokeConsent { consent: consent(n) })),
        2 => (0..3_u32, prop::bool::weighted(0.2), prop::collection::vec((0..6_u32, prop::bool::ANY), 0..4), prop::bool::weighted(0.1))
            .prop_map(|(of, replace, users, fills)| {
                let (mut add, mut remove) = (Vec::new(), Vec::new());
                users.into_iter().for_each(|(n, is_added)| if is_added { &mut add } else { &mut remove }.push(user(n)));
                // Nearly the maximum.
                add.extend((100..1_098).filter(|_| fills).map(user));
                let change = BlockListChange { clear_first: replace, add, remove };
                RandomWrite::Complete(QueueWrite::UpdateBlockList { user: user(of), change })
            }),
        3 => (n, end_reason(), now.clone(), now.clone())
            .prop_map(|(n, how, purge, now)| RandomWrite::Complete(end_ticket(n, how, purge, now))),
        6 => (0..5_u32, tickets, now).prop_map(|(n, tickets, now)| RandomWrite::Propose { n, tickets, now }),
        6 => transition(),
        4 => (0..5_u32, prop::collection::vec(0..USERS, 1..4), prop::collection::vec(0..TICKETS, 0..4))
            .prop_map(|(n, mut users, elsewhere)| {
                users.sort_unstable();
                users.dedup();
                let (first, rest) = users.split_at(1);
                let members = [(20 + 2 * n, first), (21 + 2 * n, rest)];
                let members = if rest.is_empty() { &members[..1] } else { &members[..] };
                let mut write = start_match(n, members, &elsewhere);
                if let QueueWrite::StartSessionMatch { consents, .. } = &mut write {
                    consents.extend(users.get(1).map(|other| consent((*other % 3) as u8)));
                }
                RandomWrite::Complete(write)
            }),
        5 => result(),
        2 => (0..5_u32, 0..USERS, 1..6_u8, 0..6_u8, 0..60_u64).prop_map(|(n, users, score, system, now)| {
            let (match_id, user, rating, now) = (match_id(n), user(users), rating_of(system), UnixMs(now));
            let ruleset = (SetId(1), RulesetHash(1));
            RandomWrite::Complete(QueueWrite::RecordFeedback { match_id, ruleset, user, stars: score, rating, now })
        }),
        1 => prop::collection::vec((0..3_u32, 0..KEYS.len(), -5.0..5.0), 0..4).prop_map(|rows| {
            let row = |(n, key, value)| RatingRow { key: KEYS[key], ..rating(n, 1, value) };
            let rows = rows.into_iter().map(row).collect();
            RandomWrite::Complete(QueueWrite::ImportRatings { rows })
        }),
    ]
}

/// A consent that outlives the sequence.
fn consent(n: u8) -> GrantedConsent {
    GrantedConsent { id: ConsentId::from_bytes([n; 16]), expires_at: UnixMs(1_000_000) }
}

fn steps() -> impl Strategy<Value = Vec<Step<RandomWrite>>> {
    let step = prop_oneof![
        20 => prop::collection::vec(random_write(), 1..10).prop_map(Step::Commit),
        1 => (0..60_u64).prop_map(Step::Load),
        1 => (0..60_u64).prop_map(Step::Purge),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..20)
}

impl RandomTransition {
    fn write(self, model: &Model) -> QueueWrite {
        let known = model.find_match(match_id(self.n)).cloned().unwrap_or_else(|| new_match(self.n, 1, &[]));
        let mut next = next_version(&known, self.stage);
        // A ticket that has returned to the queue cannot leave the match.
        let seats = next.tickets.iter_mut().filter(|member| model.is_in_match(member.ticket_id, known.id));
        let seats = seats.flat_map(|member| &mut member.players);
        for (seat, _) in seats.zip(self.leaves).filter(|(_, leaves)| *leaves) {
            seat.left_at.get_or_insert(UnixMs(self.now));
        }
        // A party that a player has left does not wait again.
        let is_whole = |member: &MatchTicket| member.players.iter().all(|seat| seat.left_at.is_none());
        let fate = |(member, fate): (&MatchTicket, Option<TicketFate>)| {
            let fate = match fate? {
                TicketFate::Requeued if !is_whole(member) => TicketFate::Ended(TicketEndReason::Left),
                fate => fate,
            };
            Some((member.ticket_id, fate, UnixMs(self.now + 30)))
        };
        let mut fates: Vec<_> = next.tickets.iter().zip(self.fates).filter_map(fate).collect();
        fates.push((ticket_id(self.extra_ticket), TicketFate::Ended(TicketEndReason::Left), UnixMs(0)));
        next.version -= u64::from(self.is_stale);
        if self.drops_a_ticket {
            next.tickets.pop();
        }
        QueueWrite::TransitionMatch {
            updated_match: Arc::new(next),
            ticket_fates: fates,
            other_tickets: self.other_tickets.into_iter().map(ticket_id).collect(),
            penalized_users: self.penalized.into_iter().map(user).collect(),
            penalty_schedule: ReadyCheckCooldowns { cooldowns_ms: [10, 20].into(), reset_after_ms: 30 },
            leaver_rating: rating_of((self.now % 6) as u8),
            purge_at: UnixMs(self.now + 10),
            now: UnixMs(self.now),
        }
    }
}

/// Keys of ratings: the first scales of two sets, and two digests.
const KEYS: [RatingKey; 4] = [
    RatingKey::of_set_on_first_scale(SetId(1)),
    RatingKey::of_set_on_first_scale(SetId(2)),
    RatingKey::of_pool_and_scale_digest(3),
    RatingKey::of_pool_and_scale_digest(4),
];

/// One of six: no rating; Elo that ignores disconnects; Elo; Plackett-Luce with decay in periods with matches only; the
/// last two with a digest key.
fn rating_of(system: u8) -> Option<KeyedRatingSpec> {
    let (key, system) = if system < 4 { (KEYS[0], system) } else { (KEYS[2], system - 2) };
    Some(KeyedRatingSpec { key, spec: rating_spec(system)? })
}

fn rating_spec(system: u8) -> Option<RatingSpec> {
    let elo = RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 });
    let beta = 25.0 / 6.0;
    let drawn = RatingSystem::PlackettLuce { mu: 25.0, sigma: 25.0 / 3.0, beta, kappa: 1e-4, tau: 25.0 / 300.0 };
    match system {
        0 => None,
        1 => Some(RatingSpec { on_disconnect: DisconnectPolicy::Ignore, ..elo }),
        2 => Some(elo),
        _ => {
            let periods = DecayPeriodFilter::Played;
            let decay =
                Some(InactiveDeviationGrowth { every_ms: 10, deviation_per_period: 0.5, max_deviation: 9.0, periods });
            Some(RatingSpec { decay, ..RatingSpec::with_defaults(drawn) })
        }
    }
}

impl RandomResult {
    fn write(self, model: &Model) -> QueueWrite {
        let known = model.find_match(match_id(self.n)).cloned().unwrap_or_else(|| new_match(self.n, 1, &[]));
        let sides: Vec<SideRank> = known
            .tickets
            .iter()
            .zip(self.ranks)
            .map(|(member, rank)| SideRank {
                team_index: member.team,
                users: member.players.iter().map(|seat| seat.user).collect(),
                rank,
            })
            .collect();
        let users = sides.iter().flat_map(|side| side.users.iter().copied());
        let mut disconnected: Vec<UserKey> =
            users.zip(self.left_early).filter(|(_, left_early)| *left_early).map(|(user, _)| user).collect();
        disconnected.sort();
        let report = ResultReport {
            match_id: known.id,
            set_id: known.set_id,
            silo: known.silo,
            ruleset_hash: known.ruleset_hash,
            // Some who left did so by the call, and some matches are disputed.
            always_rated_leavers: disconnected.iter().copied().take(usize::from(self.system % 2)).collect(),
            disputing_users: sides
                .iter()
                .flat_map(|side| side.users.clone())
                .filter(|_| self.now.is_multiple_of(5))
                .collect(),
            sides,
            left_early: disconnected,
            started_at: UnixMs(1),
            duration_ms: Some(self.now),
            forecast: MatchForecast {
                match_quality: -1.0 / 3.0,
                ticket_waits_ms: vec![7],
                ticket_round_trips_ms: vec![None],
                ..MatchForecast::default()
            },
        };
        let outcome = MatchEndReason::Played;
        let next = next_version(
            &known,
            MatchStage::Ended {
                end_reason: outcome,
                started_at: None,
                assignment: None,
                purge_at: UnixMs(self.now + 20),
            },
        );
        let ended = |member: &MatchTicket| (member.ticket_id, TicketFate::Ended(TicketEndReason::Played), UnixMs(0));
        let ends = QueueWrite::TransitionMatch {
            ticket_fates: next.tickets.iter().map(ended).collect(),
            updated_match: Arc::new(next),
            other_tickets: vec![],
            penalized_users: vec![],
            penalty_schedule: ReadyCheckCooldowns::default(),
            leaver_rating: None,
            purge_at: UnixMs(self.now + 10),
            now: UnixMs(self.now),
        };
        QueueWrite::RecordResult {
            report_digest: report.digest(None),
            report: Arc::new(report),
            match_version: known.version - u64::from(self.is_stale),
            end_transition: self.ends.then(|| Box::new(ends)),
            rating: rating_of(self.system),
            now: UnixMs(self.now),
        }
    }
}

impl RandomWrite {
    fn write(self, model: &Model) -> QueueWrite {
        match self {
            RandomWrite::Complete(write) => write,
            RandomWrite::Propose { n, tickets, now } => {
                // Nearly always tickets of one queue; the others are refused.
                let set = model.set_of(ticket_id(tickets[0])).map_or(1, |set| set.0);
                let mut proposed = new_match(n, set, &tickets.iter().map(|n| (*n, &[0_u32][..])).collect::<Vec<_>>());
                for member in &mut proposed.tickets {
                    let seat = member.players[0].clone();
                    let users = model.users(member.ticket_id).into_iter();
                    member.players = users.map(|user| MatchPlayer { user, ..seat.clone() }).collect();
                }
                propose(proposed, now)
            }
            RandomWrite::Transition(it) => it.write(model),
            RandomWrite::Result(it) => it.write(model),
        }
    }
}

impl Model {
    /// A user in two tickets of a queue or in two matches, which breaks the invariant.
    fn invariant_violation(&self) -> Option<UserKey> {
        let open = self.tickets.iter().filter(|it| !matches!(it.state, TicketState::Ended { .. }));
        let users = |it: &StoredTicket| {
            let users = it.ticket.session.sorted_users().into_iter();
            users.filter(|user| self.is_in_ticket(*user, &it.ticket)).collect::<Vec<_>>()
        };
        let queued = open.flat_map(|it| users(it).into_iter().map(|user| (user, Some(it.ticket.set_id))));
        let mut all: Vec<_> = queued.chain(self.players.iter().map(|(user, _)| (*user, None))).collect();
        all.sort();
        all.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].0)
    }

    /// Users of a ticket.
    fn users(&self, id: TicketId) -> Vec<UserKey> {
        self.tickets.iter().find(|it| it.ticket.id == id).map_or(Vec::new(), |it| it.ticket.session.sorted_users())
    }

    /// Set of a ticket.
    fn set_of(&self, id: TicketId) -> Option<SetId> {
        self.tickets.iter().find(|it| it.ticket.id == id).map(|it| it.ticket.set_id)
    }

    /// Whether a ticket is in this match.
    fn is_in_match(&self, id: TicketId, match_id: MatchId) -> bool {
        self.tickets.iter().any(|it| it.ticket.id == id && it.state == TicketState::InMatch(match_id))
    }

    /// A match in its current version.
    fn find_match(&self, id: MatchId) -> Option<&Match> {
        self.matches.iter().find(|it| it.id == id).map(|it| &**it)
    }
}

impl StoreModel for Model {
    type RandomWrite = RandomWrite;

    async fn compare_commit(&mut self, store: &impl Store, writes: Vec<RandomWrite>) {
        let (mut batch, mut expected) = (Vec::new(), Vec::new());
        self.begin();
        for random_write in writes {
            let write = random_write.write(self);
            expected.push(self.apply(write.clone()));
            batch.push(write);
            assert_eq!(self.invariant_violation(), None, "the model keeps the invariant");
        }
        assert_eq!(store.commit_queues(&batch).await.unwrap(), expected, "{batch:#?}");
    }

    async fn compare_load(&mut self, store: &impl Store, now: UnixMs) {
        let load = store.purge_and_load_queues(now).await.unwrap();
        let expected = self.load(now);
        assert_eq!((load.tickets, load.matches, load.ratings), (expected.tickets, expected.matches, expected.ratings));
        let all = store.list_finished_matches((UnixMs(0), MatchId::from_bytes([0; 16])), 100).await.unwrap();
        assert_eq!(all, self.finished());
        for n in 0..USERS {
            for key in KEYS {
                let changes = store.read_rating_changes(user(n), key).await.unwrap();
                assert_eq!(changes, self.rating_changes(user(n), key));
            }
        }
    }

    async fn purge_both(&mut self, store: &impl Store, now: UnixMs) {
        store.purge_queues(now).await.unwrap();
        self.purge(now);
    }
}

/// R1, R23: invariants and results equal the model's.
#[test]
fn random_queue_writes_on_memory_equal_the_model() {
    compare_memory::<Model>(1_000, steps());
}

/// R1, R23, and R2 without the kill: acknowledged writes are there after any reopening.
#[test]
fn random_queue_writes_on_sqlite_equal_the_model() {
    compare_sqlite::<Model>(60, steps());
}

/// R1, R23: invariants and results equal the model's; each reopening is another replica.
#[test]
fn random_queue_writes_on_postgres_equal_the_model() {
    let tables = "ticket, ticket_user, match, match_user, penalty, rating, queue_change, queue_lease, \
                  result, rating_change, keyed_rating, keyed_rating_change, feedback, consent, block_list";
    compare_postgres::<Model>("random_queue_writes_on_postgres_equal_the_model", 60, steps(), tables);
}

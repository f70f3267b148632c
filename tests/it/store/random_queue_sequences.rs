//! Whatever is done to a store's queues, in whatever order and grouping, it answers and remembers as the model does (R23),
//! and nobody is in two matches, nor in two tickets of a queue (R1). `SCALE` multiplies the number of sequences: at 40 they
//! hold a million changes.

use std::sync::Arc;

use fireteam::domain::id::{MatchId, SetId, TicketId, UserKey};
use fireteam::domain::lifecycle::{
    Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket, TicketFate,
};
use fireteam::domain::match_result::{MatchExpectation, ResultReport, SideRank};
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::ruleset::rating::{
    DecayPeriodFilter, DisconnectPolicy, InactivityDecay, RatingSpec, RatingSystem,
};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::queues::{PenaltySchedule, QueueWrite, TicketState};
use proptest::prelude::*;

use crate::store::queue_model::Model;
use crate::store::queue_rows::{beat, end, enter, match_id, play, propose, rating, then, ticket, ticket_id, user};
use crate::store::sequence_runner::{reopened, runner, runtime, shared};

/// A change, but for what only whoever knows how things stand can say.
#[derive(Clone, Debug)]
enum Change {
    As(QueueWrite),
    /// Of tickets with the users that they have.
    Propose {
        n: u32,
        tickets: Vec<u32>,
        now: u64,
    },
    Move(Move),
    Conclude(Conclude),
}

/// What came of match `n`, judged at the edition it is at or at another: every ticket a side.
#[derive(Clone, Debug)]
struct Conclude {
    n: u32,
    stale: bool,
    /// Of the members, in their order.
    ranks: Vec<u32>,
    /// Of the users, in the order of sides.
    left: Vec<bool>,
    ends: bool,
    system: u8,
    now: u64,
}

/// A move of match `n`, on from the edition it is at or from one that it is not.
#[derive(Clone, Debug)]
struct Move {
    n: u32,
    stale: bool,
    stage: MatchStage,
    /// Of the members, in their order.
    fates: Vec<Option<TicketFate>>,
    /// One that may not be in it.
    stray: u32,
    loses_a_member: bool,
    elsewhere: Vec<u32>,
    punished: Vec<u32>,
    now: u64,
}

/// One thing to do to a store.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Change>),
    Load(u64),
    Forget(u64),
    /// Drop it as a crash would, and open it again.
    Reopen,
}

const TICKETS: u32 = 7;
const USERS: u32 = 6;

fn stage() -> impl Strategy<Value = MatchStage> {
    prop_oneof![
        Just(MatchStage::Placing { deadline: UnixMs(50) }),
        Just(MatchStage::Playing { assignment: Assignment::Unhosted, started_at: UnixMs(1), times_out_at: UnixMs(70) }),
        (0..70_u64).prop_map(|at| MatchStage::Ended {
            end_reason: MatchEndReason::NoServer,
            started_at: None,
            assignment: None,
            purge_at: UnixMs(at)
        }),
    ]
}

fn ending() -> impl Strategy<Value = TicketEndReason> {
    prop::sample::select(vec![
        TicketEndReason::Left,
        TicketEndReason::Expired,
        TicketEndReason::NotAcceptedInTime,
        TicketEndReason::Cancelled,
    ])
}

fn a_move() -> impl Strategy<Value = Change> {
    let fate = prop_oneof![
        Just(None),
        Just(Some(TicketFate::Requeued)),
        ending().prop_map(|how| Some(TicketFate::Ended(how)))
    ];
    let who = (prop::collection::vec(0..TICKETS, 0..2), prop::collection::vec(0..USERS, 0..3));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    let fates = prop::collection::vec(fate, 3);
    (0..5_u32, flags, stage(), fates, 0..TICKETS, who, 0..60_u64).prop_map(
        |(n, (stale, loses_a_member), stage, fates, stray, (elsewhere, punished), now)| {
            Change::Move(Move { n, stale, stage, fates, stray, loses_a_member, elsewhere, punished, now })
        },
    )
}

fn a_result() -> impl Strategy<Value = Change> {
    let (ranks, left) = (prop::collection::vec(1..4_u32, 3), prop::collection::vec(prop::bool::weighted(0.2), 6));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.7));
    (0..5_u32, flags, ranks, left, 0..4_u8, 0..60_u64).prop_map(|(n, (stale, ends), ranks, left, system, now)| {
        Change::Conclude(Conclude { n, stale, ranks, left, ends, system, now })
    })
}

/// Few names and few moments, so that everything meets everything.
fn change() -> impl Strategy<Value = Change> {
    let (n, now) = (0..TICKETS, 0..60_u64);
    let users = prop::collection::vec(0..USERS, 1..3);
    let tickets = prop::collection::vec(0..TICKETS, 1..4);
    prop_oneof![
        8 => (n.clone(), 1..3_u32, users, prop::bool::weighted(0.15), now.clone(), 10..60_u64).prop_map(
            |(n, set, users, alone, now, more)| {
                Change::As(enter(Ticket { exclusive: alone, ..ticket(n, set, &users) }, now + more, now))
            }
        ),
        2 => (n.clone(), now.clone()).prop_map(|(n, expires)| Change::As(beat(n, expires))),
        3 => (n, ending(), now.clone(), now.clone())
            .prop_map(|(n, how, forget, now)| Change::As(end(n, how, forget, now))),
        6 => (0..5_u32, tickets, now).prop_map(|(n, tickets, now)| Change::Propose { n, tickets, now }),
        6 => a_move(),
        5 => a_result(),
        2 => (0..5_u32, 0..USERS, 1..6_u8, 0..4_u8, 0..60_u64).prop_map(|(n, who, score, system, now)| {
            let (match_id, user, spec, now) = (match_id(n), user(who), spec_of(system), UnixMs(now));
            Change::As(QueueWrite::RecordFeedback { match_id, set_id: SetId(1), user, stars: score, rating_spec: spec, now })
        }),
        1 => prop::collection::vec((0..3_u32, 1..3_u32, -5.0..5.0), 0..4).prop_map(|rows| {
            let rows = rows.into_iter().map(|(n, set, value)| rating(n, set, value)).collect();
            Change::As(QueueWrite::ImportRatings { rows })
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => prop::collection::vec(change(), 1..10).prop_map(Step::Commit),
        1 => (0..60_u64).prop_map(Step::Load),
        1 => (0..60_u64).prop_map(Step::Forget),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..20)
}

impl Move {
    fn write(self, model: &Model) -> QueueWrite {
        let known = model.play(match_id(self.n)).cloned().unwrap_or_else(|| play(self.n, 1, &[]));
        let fate = |(member, fate): (_, Option<TicketFate>)| Some((member, fate?, UnixMs(self.now + 30)));
        let members: Vec<_> = known.tickets.iter().map(|member| member.ticket_id).collect();
        let mut fates: Vec<_> = members.into_iter().zip(self.fates).filter_map(fate).collect();
        fates.push((ticket_id(self.stray), TicketFate::Ended(TicketEndReason::Left), UnixMs(0)));
        let mut next = then(&known, self.stage);
        next.version -= u64::from(self.stale);
        if self.loses_a_member {
            next.tickets.pop();
        }
        QueueWrite::TransitionMatch {
            updated_match: Arc::new(next),
            ticket_fates: fates,
            other_tickets: self.elsewhere.into_iter().map(ticket_id).collect(),
            penalized_users: self.punished.into_iter().map(user).collect(),
            penalty_schedule: PenaltySchedule { cooldowns_ms: [10, 20].into(), reset_after_ms: 30 },
            purge_at: UnixMs(self.now + 10),
            now: UnixMs(self.now),
        }
    }
}

/// One of four: nothing is rated, or by Elo strictly, by Elo, by Plackett-Luce with decay that stands still while nobody plays.
fn spec_of(system: u8) -> Option<RatingSpec> {
    let elo = RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 });
    let beta = 25.0 / 6.0;
    let drawn = RatingSystem::PlackettLuce { mu: 25.0, sigma: 25.0 / 3.0, beta, kappa: 1e-4, tau: 25.0 / 300.0 };
    match system {
        0 => None,
        1 => Some(RatingSpec { on_disconnect: DisconnectPolicy::Ignore, ..elo }),
        2 => Some(elo),
        _ => {
            let periods = DecayPeriodFilter::Played;
            let decay = Some(InactivityDecay { every_ms: 10, deviation: 0.5, max_deviation: 9.0, periods });
            Some(RatingSpec { decay, ..RatingSpec::with_defaults(drawn) })
        }
    }
}

impl Conclude {
    fn write(self, model: &Model) -> QueueWrite {
        let known = model.play(match_id(self.n)).cloned().unwrap_or_else(|| play(self.n, 1, &[]));
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
            users.zip(self.left).filter(|(_, left)| *left).map(|(user, _)| user).collect();
        disconnected.sort();
        let report = ResultReport {
            match_id: known.id,
            set_id: known.set_id,
            silo: known.silo,
            ruleset_hash: known.ruleset_hash,
            sides,
            left_early: disconnected,
            started_at: UnixMs(1),
            duration_ms: Some(self.now),
            expectation: MatchExpectation {
                match_quality: -1.0 / 3.0,
                ticket_waits_ms: vec![7],
                ticket_round_trips_ms: vec![None],
                ..MatchExpectation::default()
            },
        };
        let spec = spec_of(self.system);
        let outcome = MatchEndReason::Played;
        let next = then(
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
            penalty_schedule: PenaltySchedule::default(),
            purge_at: UnixMs(self.now + 10),
            now: UnixMs(self.now),
        };
        QueueWrite::RecordResult {
            report_digest: report.digest(None),
            report: Arc::new(report),
            match_version: known.version - u64::from(self.stale),
            end_transition: self.ends.then(|| Box::new(ends)),
            rating_spec: spec,
            now: UnixMs(self.now),
        }
    }
}

impl Change {
    fn write(self, model: &Model) -> QueueWrite {
        match self {
            Change::As(write) => write,
            Change::Propose { n, tickets, now } => {
                let mut proposed = play(n, 1, &tickets.iter().map(|n| (*n, &[0_u32][..])).collect::<Vec<_>>());
                for member in &mut proposed.tickets {
                    let seat = member.players[0].clone();
                    let users = model.users(member.ticket_id).into_iter();
                    member.players = users.map(|user| MatchPlayer { user, ..seat.clone() }).collect();
                }
                propose(proposed, now)
            }
            Change::Move(it) => it.write(model),
            Change::Conclude(it) => it.write(model),
        }
    }
}

impl Model {
    /// The rule that must hold whatever was done: who is in two tickets of a queue, or in two matches.
    fn torn(&self) -> Option<UserKey> {
        let open = self.tickets.iter().filter(|it| !matches!(it.state, TicketState::Ended { .. }));
        let queued =
            open.flat_map(|it| it.ticket.session.sorted_users().into_iter().map(|user| (user, Some(it.ticket.set_id))));
        let mut all: Vec<_> = queued.chain(self.players.iter().map(|(user, _)| (*user, None))).collect();
        all.sort();
        all.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].0)
    }

    /// Who was to be in a ticket.
    fn users(&self, id: TicketId) -> Vec<UserKey> {
        self.tickets.iter().find(|it| it.ticket.id == id).map_or(Vec::new(), |it| it.ticket.session.sorted_users())
    }

    /// A match as it stands.
    fn play(&self, id: MatchId) -> Option<&Match> {
        self.matches.iter().find(|it| it.id == id).map(|it| &**it)
    }
}

/// Takes every step on the store and on the model, and ends by loading both.
async fn check<S: Store>(steps: Vec<Step>, mut open: impl AsyncFnMut(Option<S>) -> S) {
    let mut store = open(None).await;
    let mut model = Model::default();
    for step in steps.into_iter().chain([Step::Load(0)]) {
        match step {
            Step::Commit(changes) => {
                let (mut batch, mut expected) = (Vec::new(), Vec::new());
                model.begin();
                for change in changes {
                    let write = change.write(&model);
                    expected.push(model.one(write.clone()));
                    batch.push(write);
                    assert_eq!(model.torn(), None, "the model itself");
                }
                assert_eq!(store.commit_queues(&batch).await.unwrap(), expected, "{batch:#?}");
            }
            Step::Load(now) => {
                let load = store.load_queues(UnixMs(now)).await.unwrap();
                let expected = model.load(UnixMs(now));
                assert_eq!(
                    (load.tickets, load.matches, load.ratings),
                    (expected.tickets, expected.matches, expected.ratings)
                );
                let all = store.list_finished_matches((UnixMs(0), MatchId::from_bytes([0; 16])), 100).await.unwrap();
                assert_eq!(all, model.finished());
                for n in 0..USERS {
                    let changes = store.read_rating_changes(user(n), SetId(1)).await.unwrap();
                    assert_eq!(changes, model.rating_changes(user(n), SetId(1)));
                }
            }
            Step::Forget(now) => {
                store.purge_queues(UnixMs(now)).await.unwrap();
                model.forget(UnixMs(now));
            }
            Step::Reopen => store = open(Some(store)).await,
        }
    }
}

/// R1, R23.
#[test]
fn memory_queues_as_the_model_does() {
    let runtime = runtime();
    let outcome = runner(1_000).run(&steps(), |steps| {
        runtime.block_on(check(steps, async |before: Option<MemoryStore>| before.unwrap_or_default()));
        Ok(())
    });
    outcome.unwrap();
}

/// R1, R23, and R2 without the kill: what was acknowledged is there after any reopening.
#[test]
fn sqlite_queues_as_the_model_does() {
    let runtime = runtime();
    let outcome = runner(60).run(&steps(), |steps| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        runtime.block_on(check(steps, async |before| reopened(&path, before).await));
        Ok(())
    });
    outcome.unwrap();
}

/// R1, R23. Each reopening is another server.
#[test]
fn postgres_queues_as_the_model_does() {
    let Some(shared) = shared("R23 of queues on Postgres") else { return };
    let outcome = runner(60).run(&steps(), |steps| {
        shared.runtime.block_on(async {
            let mut number = 0;
            let open = async |before| {
                number += 1;
                shared.server(number, before).await
            };
            check(steps, open).await;
            let tables = "ticket, ticket_user, match, match_user, penalty, rating, queue_change, queue_lease, \
                          connected_users, result, rating_change, feedback";
            shared.empty(tables).await;
        });
        Ok(())
    });
    outcome.unwrap();
}

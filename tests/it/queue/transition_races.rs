//! Concurrent transitions of one match: in one batch of the writer, and with another server.

use std::sync::Arc;

use fireteam::clock::Clock as _;
use fireteam::domain::id::{SetId, UserKey};
use fireteam::domain::lifecycle::{Match, MatchEndReason, MatchStage, TicketFate};
use fireteam::domain::queue::ticket::TicketEndReason;
use fireteam::domain::session::{Player, Session};
use fireteam::domain::time::UnixMs;
use fireteam::engine::Engine;
use fireteam::engine::command::Caller;
use fireteam::engine::error::EngineError;
use fireteam::engine::queues::command::{
    EnterQueueCommand, ReadyCheckResponse, TicketPhase, TicketReference, TicketStatus,
};
use fireteam::rules::parse_ruleset;
use fireteam::store::queues::{QueueOutcome, QueueStore as _, QueueWrite, ReadyCheckCooldowns};

use crate::support::faulty_engine::start_engine;
use crate::support::faulty_store::FaultyStore;
use crate::support::queue_server::{SET_ID, duel_ruleset};
use crate::support::test_server::TestClock;

/// Two tickets in a ready check that no player has answered.
struct ReadyCheck {
    engine: Arc<Engine>,
    store: Arc<FaultyStore>,
    clock: Arc<TestClock>,
    tickets: [TicketReference; 2],
    found: Arc<Match>,
}

impl ReadyCheck {
    async fn proposed() -> Self {
        let clock = Arc::new(TestClock::new());
        let store = Arc::new(FaultyStore::default());
        let rules = parse_ruleset("duel.xml", &duel_ruleset(r#"<ReadyCheck TimeoutMs="20000"/>"#)).expect("a ruleset");
        let engine = Arc::new(start_engine(&store, vec![("duel.xml".into(), Arc::new(rules))], &clock).await);
        let mut tickets = Vec::new();
        for number in [1, 2] {
            let entered = engine.queues().enter_queue(&Caller::default(), enter(number, 20.0)).await.expect("enter");
            tickets.push(TicketReference {
                id: entered.status.id,
                ticket_token: entered.ticket_token,
                resume_token: Vec::new(),
            });
        }
        let mut updates = engine.queues().watch_tickets(&Caller::default(), &tickets[..1]).expect("its own ticket");
        let found = loop {
            let status = updates.next_status().await.expect("a status");
            if status.phase == TicketPhase::Proposed {
                break status.match_view.expect("a match").found_match;
            }
        };
        let [one, other] = <[TicketReference; 2]>::try_from(tickets).expect("two");
        Self { engine, store, clock, tickets: [one, other], found }
    }

    /// Accepts for one of the two, in a task.
    fn accept(&self, at: usize) -> tokio::task::JoinHandle<Result<TicketStatus, EngineError>> {
        let respond = ReadyCheckResponse {
            ticket: self.tickets[at].clone(),
            match_id: self.found.id,
            accept: true,
            users: Vec::new(),
        };
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move { engine.queues().respond_to_ready_check(&Caller::default(), respond).await })
    }

    /// Pauses the writer at an unrelated batch, so that the following commands are in one batch.
    async fn pause_writer(&self) {
        self.store.pause_queue_batches();
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move { engine.queues().enter_queue(&Caller::default(), enter(3, 50.0)).await });
        self.store.wait_for_paused_batch().await;
    }
}

/// A command of one player to enter.
fn enter(number: u8, skill: f64) -> EnterQueueCommand {
    let user = UserKey::from_bytes([number; 16]);
    let player = Player { stated_skill: Some(skill), ..Player::from_user(user) };
    let session = Session { party_sizes: [1].into(), players: vec![player], ..Session::default() };
    let key = format!("the key of ticket {number}");
    EnterQueueCommand { set_id: SetId(SET_ID), session, idempotency_key: key, ..EnterQueueCommand::default() }
}

/// Lets all started calls proceed as far as they can.
async fn yield_to_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// R1: a transition based on a stale one is stale too, although its version is the next. Otherwise a match that another
/// server has ended would start.
#[tokio::test]
async fn transition_based_on_a_stale_one_is_stale() {
    let ready_check = ReadyCheck::proposed().await;
    ready_check.pause_writer().await;
    // Both in one batch: the second acceptance starts the match, based on the first.
    let answers = [ready_check.accept(0), ready_check.accept(1)];
    yield_to_tasks().await;
    // At the same time a player declines on another server, which makes version 2 there.
    let ended = MatchStage::Ended {
        end_reason: MatchEndReason::Declined,
        started_at: None,
        assignment: None,
        purge_at: UnixMs(u64::MAX / 2),
    };
    let declined =
        Arc::new(Match { version: ready_check.found.version + 1, stage: ended, ..(*ready_check.found).clone() });
    let now = ready_check.clock.now();
    let ends = |at: usize| (ready_check.tickets[at].id, TicketFate::Ended(TicketEndReason::Declined), now);
    let other_servers_write = QueueWrite::TransitionMatch {
        updated_match: Arc::clone(&declined),
        ticket_fates: vec![(ready_check.tickets[0].id, TicketFate::Requeued, now.plus_ms(60_000)), ends(1)],
        other_tickets: Vec::new(),
        penalized_users: Vec::new(),
        penalty_schedule: ReadyCheckCooldowns::default(),
        leaver_rating: None,
        purge_at: now.plus_ms(60_000),
        now,
    };
    let outcomes = ready_check.store.inner.commit_queues(&[other_servers_write]).await.expect("memory");
    assert!(matches!(outcomes[0], QueueOutcome::MatchWritten { .. }), "{outcomes:?}");
    ready_check.store.resume_queue_batches();
    for answer in answers {
        assert_eq!(answer.await.expect("a task"), Err(EngineError::NoReadyCheck));
    }
    let stored = ready_check.store.read_match(ready_check.found.id).await.expect("memory").expect("the match exists");
    assert_eq!(stored, declined, "the match that the other server ended stays ended");
}

/// R2: a response without a change of its own waits until the change that it depends on is durable.
#[tokio::test]
async fn ready_check_response_waits_until_it_is_durable() {
    let ready_check = ReadyCheck::proposed().await;
    ready_check.pause_writer().await;
    // The same response twice in one batch: the second depends on the first.
    let answers = [ready_check.accept(0), ready_check.accept(0)];
    yield_to_tasks().await;
    ready_check.store.release_batch_and_wait_for_next().await;
    yield_to_tasks().await;
    assert!(answers.iter().all(|answer| !answer.is_finished()), "no write is durable yet");
    ready_check.store.resume_queue_batches();
    for answer in answers {
        let status = answer.await.expect("a task").expect("accepted");
        assert_eq!(status.match_view.expect("a match").own_players[0].accepted, Some(true));
    }
}

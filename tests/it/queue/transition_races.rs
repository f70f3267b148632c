//! Moves of one match that meet: in one batch of the writer, and with another server's.

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
use fireteam::store::queues::{PenaltySchedule, QueueOutcome, QueueStore as _, QueueWrite};

use crate::support::faulty_store::{FaultyStore, start_engine};
use crate::support::queue_server::{SET_ID, duel_ruleset};
use crate::support::test_server::TestClock;

/// Two who have been proposed to each other, and have not answered.
struct Duel {
    engine: Arc<Engine>,
    store: Arc<FaultyStore>,
    clock: Arc<TestClock>,
    tickets: [TicketReference; 2],
    play: Arc<Match>,
}

impl Duel {
    async fn proposed() -> Self {
        let clock = Arc::new(TestClock::new());
        let store = Arc::new(FaultyStore::default());
        let rules = parse_ruleset("duel.xml", &duel_ruleset(r#"<ReadyCheck TimeoutMs="20000"/>"#)).expect("a ruleset");
        let engine = Arc::new(start_engine(&store, vec![("duel.xml".into(), Arc::new(rules))], &clock).await);
        let mut tickets = Vec::new();
        for name in [1, 2] {
            let entered = engine.queues().enter_queue(&Caller::default(), enter(name, 20.0)).await.expect("it enters");
            tickets.push(TicketReference {
                id: entered.status.id,
                ticket_token: entered.ticket_token,
                resume_token: Vec::new(),
            });
        }
        let mut news = engine.queues().watch_tickets(&Caller::default(), &tickets[..1]).expect("its own");
        let play = loop {
            let status = news.next_status().await.expect("news");
            if status.phase == TicketPhase::Proposed {
                break status.match_view.expect("a match").found_match;
            }
        };
        let [one, other] = <[TicketReference; 2]>::try_from(tickets).expect("two");
        Self { engine, store, clock, tickets: [one, other], play }
    }

    /// One of the two agrees.
    fn agrees(&self, at: usize) -> tokio::task::JoinHandle<Result<TicketStatus, EngineError>> {
        let respond = ReadyCheckResponse {
            ticket: self.tickets[at].clone(),
            match_id: self.play.id,
            accept: true,
            users: Vec::new(),
        };
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move { engine.queues().respond_to_ready_check(&Caller::default(), respond).await })
    }

    /// Has the writer stand at the gate with a batch that has nothing to do with them, so that what follows comes into the next
    /// one together.
    async fn hold_the_writer(&self) {
        self.store.pause_queue_batches();
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move { engine.queues().enter_queue(&Caller::default(), enter(3, 50.0)).await });
        self.store.wait_for_paused_batch().await;
    }
}

/// Somebody begins to wait.
fn enter(name: u8, skill: f64) -> EnterQueueCommand {
    let user = UserKey::from_bytes([name; 16]);
    let player = Player { user, client_key: user, stated_skill: Some(skill) };
    let session = Session { party_sizes: vec![1], players: vec![player], ..Session::default() };
    let key = format!("a key of its own {name}");
    EnterQueueCommand { set_id: SetId(SET_ID), session, idempotency_key: key, ..EnterQueueCommand::default() }
}

/// Has every call that was begun come as far as it gets.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// R1: a move that is made from one that came too late comes too late as well, though its edition is the next. Without this
/// rule a match that another server has ended would be played, by players who have long gone elsewhere.
#[tokio::test]
async fn a_move_made_from_one_that_was_too_late_is_too_late() {
    let duel = Duel::proposed().await;
    duel.hold_the_writer().await;
    // Both in one batch: whoever agrees last makes a match that is played of one to which the other has agreed.
    let answers = [duel.agrees(0), duel.agrees(1)];
    settle().await;
    // Meanwhile another server's player declines, which is the match's second edition there.
    let over = MatchStage::Ended {
        end_reason: MatchEndReason::Declined,
        started_at: None,
        assignment: None,
        purge_at: UnixMs(u64::MAX / 2),
    };
    let declined = Arc::new(Match { version: duel.play.version + 1, stage: over, ..(*duel.play).clone() });
    let now = duel.clock.now();
    let ends = |at: usize| (duel.tickets[at].id, TicketFate::Ended(TicketEndReason::Declined), now);
    let elsewhere = QueueWrite::TransitionMatch {
        updated_match: Arc::clone(&declined),
        ticket_fates: vec![(duel.tickets[0].id, TicketFate::Requeued, now.plus_ms(60_000)), ends(1)],
        other_tickets: Vec::new(),
        penalized_users: Vec::new(),
        penalty_schedule: PenaltySchedule::default(),
        purge_at: now.plus_ms(60_000),
        now,
    };
    let outcomes = duel.store.inner.commit_queues(&[elsewhere]).await.expect("memory");
    assert!(matches!(outcomes[0], QueueOutcome::MatchWritten { .. }), "{outcomes:?}");
    duel.store.resume_queue_batches();
    for answer in answers {
        assert_eq!(answer.await.expect("a task"), Err(EngineError::NoReadyCheck));
    }
    let stands = duel.store.read_match(duel.play.id).await.expect("memory").expect("it is remembered");
    assert_eq!(stands, declined, "what the other server has ended stays ended");
}

/// R2: an answer that changes nothing in what is about to be written is given when that has been written, not before.
#[tokio::test]
async fn an_answer_waits_for_what_it_rests_on() {
    let duel = Duel::proposed().await;
    duel.hold_the_writer().await;
    // The same twice in one batch: the second changes nothing in what the first is about to make.
    let answers = [duel.agrees(0), duel.agrees(0)];
    settle().await;
    duel.store.release_batch_and_wait_for_next().await;
    settle().await;
    assert!(answers.iter().all(|answer| !answer.is_finished()), "nothing is durable yet");
    duel.store.resume_queue_batches();
    for answer in answers {
        let status = answer.await.expect("a task").expect("heard");
        assert_eq!(status.match_view.expect("a match").own_players[0].accepted, Some(true));
    }
}

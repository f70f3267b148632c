//! Tests of the queue loop: each transition by hand, and any order of events.

mod latency_tokens;

use std::time::Duration;

use proptest::prelude::*;
use tonic::Code;

use crate::matching::{CallError, CallId, MonotonicTime};
use crate::pb;
use crate::queueing::*;

/// Loop with a clock, and what it has asked for.
struct Scene {
    queueing: Queueing,
    now: MonotonicTime,
    calls: Vec<QueueCall>,
    watches: Vec<pb::QueueWatchRequest>,
    outcomes: Vec<QueueOutcome>,
}

impl Scene {
    fn new() -> Self {
        Self::of(Queueing::new(pb::QueueEnterRequest { matchmaking_set_id: Some(7), ..Default::default() }, [3; 32]))
    }

    fn of(queueing: Queueing) -> Self {
        let now = MonotonicTime::from_millis(1_000);
        let mut scene = Self { queueing, now, calls: Vec::new(), watches: Vec::new(), outcomes: Vec::new() };
        scene.handle(QueueEvent::Start);
        scene
    }

    /// Loop whose ticket was entered.
    fn waiting() -> Self {
        let mut scene = Self::new();
        scene.answer(Ok(entered()));
        scene
    }

    /// Loop in a match.
    fn playing() -> Self {
        let mut scene = Self::waiting();
        scene.status(pb::TicketState::Matched);
        scene.handle(QueueEvent::Connected);
        assert_eq!(scene.queueing.state(), QueueingState::Playing);
        scene
    }

    fn handle(&mut self, event: QueueEvent) {
        self.queueing.handle(event, self.now);
        self.calls.extend(std::iter::from_fn(|| self.queueing.poll_call()));
        self.watches.extend(self.queueing.poll_watch());
        self.outcomes.extend(std::iter::from_fn(|| self.queueing.poll_outcome()));
        let has_timer = self.queueing.poll_timeout().is_some();
        let waits_for_events = matches!(self.queueing.state(), QueueingState::Idle | QueueingState::Ended);
        assert!(waits_for_events || has_timer, "{:?} waits without a timer", self.queueing.state());
    }

    /// Result of the last call.
    fn answer(&mut self, result: Result<QueueAnswer, CallError>) {
        let id = self.calls.last().expect("a call").id;
        self.handle(QueueEvent::Answer { id, result });
    }

    fn status(&mut self, state: pb::TicketState) {
        self.handle(QueueEvent::Status(Box::new(status(state))));
    }

    /// Lets the time pass, with all timeouts on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        while let Some(at) = self.queueing.poll_timeout().filter(|at| *at <= end) {
            steps += 1;
            assert!(steps < 10_000, "time stands still in {:?}", self.queueing.state());
            self.now = self.now.max(at);
            self.handle(QueueEvent::Timeout);
        }
        self.now = end;
    }

    fn end(&self) -> Option<&QueueEnd> {
        match self.outcomes.last() {
            Some(QueueOutcome::Ended(end)) => Some(end),
            _ => None,
        }
    }
}

fn status(state: pb::TicketState) -> pb::TicketStatus {
    let found = pb::MatchStatus { match_id: "match".into(), ..Default::default() };
    pb::TicketStatus {
        ticket_id: "ticket".into(),
        state: state.into(),
        found_match: (state != pb::TicketState::Waiting).then_some(found),
        resume_token: b"resume".to_vec(),
        ..Default::default()
    }
}

fn entered() -> QueueAnswer {
    QueueAnswer::Enter(Box::new(pb::QueueEnterResponse {
        status: Some(status(pb::TicketState::Waiting)),
        ticket_token: b"secret token".to_vec(),
        expires_in_ms: 30_000,
        ..Default::default()
    }))
}

fn error(code: Code, reason: pb::ErrorReason) -> CallError {
    CallError { code, reason, retry_after_ms: None, message: String::new() }
}

fn outage() -> QueueEvent {
    QueueEvent::WatchEnded(Some(error(Code::Unavailable, pb::ErrorReason::Unspecified)))
}

/// The ticket is entered with an idempotency key and watched; the players reply to the ready check, once for each match.
#[test]
fn queue_loop_enters_watches_and_replies() {
    let mut scene = Scene::new();
    let QueueRequest::Enter(enter) = scene.calls[0].request.clone() else { panic!("enter") };
    assert_eq!(enter.idempotency_key.len(), 32);
    scene.answer(Ok(entered()));
    assert_eq!((scene.queueing.state(), scene.watches.len()), (QueueingState::Watching, 1));
    assert_eq!(scene.watches[0].tickets[0].ticket_token, b"secret token");
    scene.handle(QueueEvent::Respond { match_id: "match".into(), accept: true });
    scene.answer(Ok(entered()));
    assert_eq!(scene.calls.len(), 1, "no ready check is open, and the second answer to Enter is of the same ticket");
    scene.status(pb::TicketState::Proposed);
    scene.status(pb::TicketState::Proposed);
    assert_eq!(scene.outcomes.iter().filter(|outcome| matches!(outcome, QueueOutcome::ReadyCheck(_))).count(), 1);
    scene.handle(QueueEvent::Respond { match_id: "another".into(), accept: true });
    scene.handle(QueueEvent::Respond { match_id: "match".into(), accept: true });
    let QueueRequest::Respond(respond) = scene.calls[1].request.clone() else { panic!("respond") };
    assert_eq!((scene.calls.len(), respond.match_id.as_str(), respond.accept), (2, "match", true));
    assert_eq!((respond.ticket_id.as_str(), respond.ticket_token.as_slice()), ("ticket", b"secret token".as_slice()));
}

/// The match starts: the game connects, plays, and reports. The loop ends when the reports of all are in.
#[test]
fn queue_loop_connects_and_reports() {
    let mut scene = Scene::playing();
    assert!(
        scene
            .outcomes
            .iter()
            .any(|outcome| matches!(outcome, QueueOutcome::Connect(found) if found.match_id == "match"))
    );
    scene.handle(QueueEvent::Report(vec![pb::TeamRank { team: 0, rank: 1 }]));
    let QueueRequest::ReportResult(report) = scene.calls.last().unwrap().request.clone() else { panic!("a report") };
    assert_eq!((report.match_id.as_str(), report.ticket_token.as_slice()), ("match", b"secret token".as_slice()));
    let with_reports = |state: pb::ReportState| {
        let mut ended = status(pb::TicketState::Ended);
        ended.end_reason = pb::TicketEndReason::Played.into();
        let reports = pb::MatchReports { state: state.into(), ..Default::default() };
        ended.found_match.as_mut().unwrap().reports = Some(reports);
        QueueEvent::Status(Box::new(ended))
    };
    scene.handle(with_reports(pb::ReportState::Settled));
    assert_eq!(scene.queueing.state(), QueueingState::Playing, "the own report is not answered");
    scene.handle(with_reports(pb::ReportState::Waiting));
    scene.answer(Ok(QueueAnswer::ReportResult(Box::default())));
    assert_eq!(scene.queueing.state(), QueueingState::Playing, "others still report");
    scene.handle(with_reports(pb::ReportState::Settled));
    assert_eq!(scene.end(), Some(&QueueEnd::Ticket(pb::TicketEndReason::Played)));
}

/// A match that falls through leads back to the queue, and the next ready check is asked again.
#[test]
fn queue_loop_goes_on_after_a_match_that_fell_through() {
    let mut scene = Scene::waiting();
    scene.status(pb::TicketState::Matched);
    scene.status(pb::TicketState::Waiting);
    assert_eq!(scene.queueing.state(), QueueingState::Watching);
    let mut next = status(pb::TicketState::Proposed);
    next.found_match.as_mut().unwrap().match_id = "next".into();
    scene.handle(QueueEvent::Status(Box::new(next)));
    assert!(matches!(scene.outcomes.last(), Some(QueueOutcome::ReadyCheck(found)) if found.match_id == "next"));
}

/// The watch is opened again through an outage, with growing pauses and the last resume token, until the ticket has expired.
#[test]
fn watch_is_repeated_until_the_ticket_expires() {
    let mut scene = Scene::waiting();
    scene.status(pb::TicketState::Waiting);
    let start = scene.now;
    let mut opened = Vec::new();
    for _ in 0..1_000 {
        if scene.end().is_some() {
            break;
        }
        let before = scene.watches.len();
        scene.handle(outage());
        let Some(at) = scene.queueing.poll_timeout() else { break };
        scene.now = at;
        scene.handle(QueueEvent::Timeout);
        if before < scene.watches.len() {
            opened.push(scene.now.since(start).as_millis());
        }
    }
    assert_eq!(scene.end(), Some(&QueueEnd::Lost));
    assert!(scene.now.since(start) >= Duration::from_secs(30) && scene.now.since(start) < Duration::from_secs(31));
    assert!((7..60).contains(&opened.len()) && opened[0] <= 200, "{opened:?}");
    assert_eq!(scene.watches.last().unwrap().tickets[0].resume_token, b"resume");

    let mut scene = Scene::waiting();
    for _ in 0..4 {
        scene.pass(Duration::from_secs(20));
        scene.handle(outage());
        let before = scene.watches.len();
        scene.pass(Duration::from_secs(6));
        assert_eq!(scene.watches.len(), before + 1, "the watch is open again");
        scene.status(pb::TicketState::Waiting);
    }
    assert_eq!(scene.queueing.state(), QueueingState::Watching, "it was heard of in between");
}

/// A match that is played needs no watch to go on: it is watched again for as long as the outage lasts.
#[test]
fn watch_of_a_played_match_is_repeated_for_ever() {
    let mut scene = Scene::playing();
    for _ in 0..200 {
        scene.handle(outage());
        scene.pass(Duration::from_secs(10));
    }
    assert_eq!(scene.queueing.state(), QueueingState::Playing);
}

/// A watch that is silent for longer than the ticket lives is replaced. One that fails for good ends the loop.
#[test]
fn watch_that_is_silent_or_refused_ends() {
    let mut scene = Scene::playing();
    let before = scene.watches.len();
    for _ in 0..5 {
        scene.pass(Duration::from_secs(20));
        scene.status(pb::TicketState::Matched);
    }
    assert_eq!(scene.watches.len(), before, "each status shows that it is open");
    scene.pass(Duration::from_secs(40));
    assert!(before < scene.watches.len());
    for (failure, end) in [
        (error(Code::NotFound, pb::ErrorReason::TicketNotFound), QueueEnd::Lost),
        (
            error(Code::PermissionDenied, pb::ErrorReason::NotOwner),
            QueueEnd::Failed(error(Code::PermissionDenied, pb::ErrorReason::NotOwner)),
        ),
    ] {
        let mut scene = Scene::waiting();
        scene.handle(QueueEvent::WatchEnded(Some(failure)));
        assert_eq!(scene.end(), Some(&end));
    }
}

/// The game may try five times to connect, a second apart; then the party leaves the match.
#[test]
fn connect_that_fails_is_repeated_and_then_left() {
    let mut scene = Scene::waiting();
    scene.status(pb::TicketState::Matched);
    let connects =
        |scene: &Scene| scene.outcomes.iter().filter(|outcome| matches!(outcome, QueueOutcome::Connect(_))).count();
    for attempt in 1..=4 {
        assert_eq!(connects(&scene), attempt);
        scene.handle(QueueEvent::ConnectFailed);
        scene.status(pb::TicketState::Matched);
        assert_eq!(connects(&scene), attempt, "not before its pause");
        scene.pass(Duration::from_secs(1));
    }
    scene.handle(QueueEvent::ConnectFailed);
    assert!(matches!(scene.calls.last().unwrap().request, QueueRequest::Leave(_)));
    scene.answer(Ok(QueueAnswer::Leave(Box::default())));
    assert_eq!(scene.end(), Some(&QueueEnd::CouldNotConnect));
}

/// Cancel leaves the ticket in every state, also one whose enter is answered later, and ends within 10 s.
#[test]
fn cancel_leaves_the_ticket() {
    for mut scene in [Scene::waiting(), Scene::playing()] {
        scene.handle(QueueEvent::Cancel);
        assert!(
            matches!(&scene.calls.last().unwrap().request, QueueRequest::Leave(leave) if leave.ticket_id == "ticket")
        );
        assert_eq!(scene.end(), None);
        scene.pass(Duration::from_secs(10));
        assert_eq!(scene.end(), Some(&QueueEnd::Cancelled));
    }
    let mut scene = Scene::waiting();
    scene.status(pb::TicketState::Proposed);
    scene.handle(QueueEvent::Respond { match_id: "match".into(), accept: true });
    scene.handle(QueueEvent::Cancel);
    scene.answer(Ok(QueueAnswer::Leave(Box::default())));
    assert_eq!(scene.end(), Some(&QueueEnd::Cancelled), "the reply is not awaited");
    for wait_s in [0, 60] {
        let mut scene = Scene::new();
        let id = scene.calls[0].id;
        scene.handle(QueueEvent::Cancel);
        scene.pass(Duration::from_secs(wait_s));
        scene.handle(QueueEvent::Answer { id, result: Ok(entered()) });
        let QueueRequest::Leave(leave) = scene.calls.last().unwrap().request.clone() else { panic!("leave") };
        assert_eq!((leave.ticket_id.as_str(), leave.ticket_token.as_slice()), ("ticket", b"secret token".as_slice()));
        scene.pass(Duration::from_secs(60));
        assert_eq!(scene.end(), Some(&QueueEnd::Cancelled));
    }
}

/// Enter is repeated with its key while the server is unavailable; a refusal ends the loop with its reason.
#[test]
fn enter_that_fails_is_repeated_or_ends() {
    let mut scene = Scene::new();
    scene.answer(Err(error(Code::Unavailable, pb::ErrorReason::StoreUnavailable)));
    scene.pass(Duration::from_secs(1));
    assert_eq!((scene.calls.len(), scene.calls[0].clone()), (2, scene.calls[1].clone()));
    let cooldown = error(Code::PermissionDenied, pb::ErrorReason::QueueCooldown);
    scene.answer(Err(cooldown.clone()));
    assert_eq!(scene.end(), Some(&QueueEnd::Failed(cooldown)));
}

/// A saved loop goes on in another process: with its ticket, or with the same enter. Nothing else is read as one.
#[test]
fn saved_loop_goes_on() {
    let entering = Scene::new();
    let restored = Scene::of(Queueing::from_saved_bytes(&entering.queueing.saved_bytes(), [9; 32]).unwrap());
    assert_eq!(restored.calls[0].request, entering.calls[0].request, "the same idempotency key");

    let mut waiting = Scene::waiting();
    waiting.status(pb::TicketState::Waiting);
    let bytes = waiting.queueing.saved_bytes();
    let mut restored = Scene::of(Queueing::from_saved_bytes(&bytes, [9; 32]).unwrap());
    assert!(restored.calls.is_empty());
    assert_eq!(restored.watches[0].tickets[0].ticket_token, b"secret token");
    assert!(restored.watches[0].tickets[0].resume_token.is_empty(), "the status itself is needed");
    restored.status(pb::TicketState::Matched);
    assert_eq!(restored.queueing.state(), QueueingState::Connecting);

    for length in 0..bytes.len() {
        assert!(Queueing::from_saved_bytes(&bytes[..length], [9; 32]).is_none(), "{length}");
    }
    assert!(Queueing::from_saved_bytes(&[bytes.as_slice(), b"x"].concat(), [9; 32]).is_none());
    assert!(Queueing::from_saved_bytes(&[b"FTQ\x02", &bytes[4..]].concat(), [9; 32]).is_none());
}

/// Debug output has no token.
#[test]
fn debug_output_of_a_queue_loop_has_no_secret() {
    let scene = Scene::playing();
    let token = QueueEvent::LatencyToken(b"secret token".to_vec().into());
    let text = format!("{:?} {:?} {:?} {:?} {token:?}", scene.queueing, scene.calls, scene.watches, scene.outcomes);
    for secret in ["secret token".to_owned(), format!("{:?}", b"secret token")] {
        assert!(!text.contains(&secret), "{text}");
    }
}

fn events() -> impl Strategy<Value = (u64, QueueEvent)> {
    let state = prop_oneof![
        Just(pb::TicketState::Waiting),
        Just(pb::TicketState::Proposed),
        Just(pb::TicketState::Placing),
        Just(pb::TicketState::Matched),
        Just(pb::TicketState::Ended),
    ];
    let failure = prop_oneof![
        Just(error(Code::Unavailable, pb::ErrorReason::Draining)),
        Just(error(Code::NotFound, pb::ErrorReason::TicketNotFound)),
        Just(error(Code::FailedPrecondition, pb::ErrorReason::NoReadyCheck)),
    ];
    let answer = prop_oneof![
        Just(entered()),
        Just(QueueAnswer::Respond(Box::default())),
        Just(QueueAnswer::Leave(Box::default())),
        Just(QueueAnswer::ReportResult(Box::default())),
        Just(QueueAnswer::Heartbeat(Default::default())),
    ];
    let result = prop_oneof![3 => answer.prop_map(Ok), 1 => failure.clone().prop_map(Err)];
    let event = prop_oneof![
        4 => (0..6_u64, result).prop_map(|(id, result)| QueueEvent::Answer { id: CallId(id), result }),
        4 => state.prop_map(|state| QueueEvent::Status(Box::new(status(state)))),
        2 => proptest::option::of(failure).prop_map(QueueEvent::WatchEnded),
        1 => any::<bool>().prop_map(|accept| QueueEvent::Respond { match_id: "match".into(), accept }),
        1 => Just(QueueEvent::Connected),
        1 => Just(QueueEvent::ConnectFailed),
        1 => Just(QueueEvent::Report(Vec::new())),
        1 => (0..3_usize).prop_map(|length| QueueEvent::LatencyToken(vec![1; length].into())),
        1 => Just(QueueEvent::Timeout),
    ];
    (0..20_000_u64, event)
}

proptest! {
    /// In any order of events the loop waits with a timer, and after a cancel it ends within 10 s, having left its ticket.
    #[test]
    fn queue_loop_ends_in_any_order_of_events(events in proptest::collection::vec(events(), 0..40)) {
        let mut scene = Scene::new();
        for (after_ms, event) in events {
            scene.pass(Duration::from_millis(after_ms));
            scene.handle(event);
        }
        let was_over = matches!(scene.queueing.state(), QueueingState::Ending | QueueingState::Ended);
        let has_ticket = scene.queueing.status().is_some();
        scene.handle(QueueEvent::Cancel);
        scene.pass(Duration::from_secs(10));
        prop_assert_eq!(scene.queueing.state(), QueueingState::Ended);
        let ended = scene.outcomes.iter().filter(|outcome| matches!(outcome, QueueOutcome::Ended(_))).count();
        prop_assert_eq!(ended, 1);
        let has_left = scene.calls.iter().any(|call| matches!(call.request, QueueRequest::Leave(_)));
        prop_assert!(was_over || !has_ticket || has_left);
        scene.pass(Duration::from_secs(300));
        prop_assert_eq!(scene.queueing.poll_timeout(), None);
    }
}

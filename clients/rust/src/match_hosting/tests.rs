//! Tests of the host of matches: each transition by hand, and any order of events.

use std::time::Duration;

use proptest::prelude::*;
use tonic::Code;

use crate::match_hosting::*;
use crate::matching::{CallError, CallId, MonotonicTime};
use crate::pb;

/// Host with a clock, and what it has asked for.
struct Scene {
    hosting: MatchHosting,
    now: MonotonicTime,
    calls: Vec<HostCall>,
    outcomes: Vec<HostingOutcome>,
    /// Heartbeats that are neither answered nor lost, and when each counts as lost.
    underway: Vec<(CallId, MonotonicTime)>,
}

/// Time after which a heartbeat without an answer counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

impl Scene {
    fn new() -> Self {
        let hosting = MatchHosting::new(b"secret token".to_vec(), [3; 32]);
        let now = MonotonicTime::from_millis(1_000);
        let mut scene = Self { hosting, now, calls: Vec::new(), outcomes: Vec::new(), underway: Vec::new() };
        scene.handle(HostingEvent::Start);
        scene
    }

    /// Host of the match `one`, which is played.
    fn playing() -> Self {
        let mut scene = Self::new();
        scene.answer(Ok(beat(&[], &["one"])));
        scene.answer(Ok(beat(&[hosted("one", pb::HostedMatchState::Playing)], &["one"])));
        scene
    }

    fn handle(&mut self, event: HostingEvent) {
        let answered = if let HostingEvent::Answer { id, .. } = &event { Some(*id) } else { None };
        let now = self.now;
        self.underway.retain(|(id, lost_at)| Some(*id) != answered && now < *lost_at);
        self.hosting.handle(event, now);
        for call in std::iter::from_fn(|| self.hosting.poll_call()) {
            if matches!(call.request, HostRequest::Heartbeat(_)) {
                self.underway.push((call.id, now + ANSWER_TIMEOUT));
            }
            self.calls.push(call);
        }
        assert!(self.underway.len() <= 1, "{:?} of {:?}", self.underway, self.hosting);
        self.outcomes.extend(std::iter::from_fn(|| self.hosting.poll_outcome()));
        let waits_for_events = matches!(self.hosting.state(), HostingState::Idle | HostingState::Ended);
        assert!(waits_for_events || self.hosting.poll_timeout().is_some(), "{:?} has no timer", self.hosting);
    }

    /// Result of the last call.
    fn answer(&mut self, result: Result<HostAnswer, CallError>) {
        let id = self.calls.last().expect("a call").id;
        self.handle(HostingEvent::Answer { id, result });
    }

    /// Lets the time pass, with all timeouts on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        while let Some(at) = self.hosting.poll_timeout().filter(|at| *at <= end) {
            steps += 1;
            assert!(steps < 10_000, "time stands still in {:?}", self.hosting);
            self.now = self.now.max(at);
            self.handle(HostingEvent::Timeout);
        }
        self.now = end;
    }

    /// Matches of the heartbeats, and whether each is given up.
    fn beats(&self) -> Vec<Vec<(&str, bool)>> {
        let heartbeats = self.calls.iter().filter_map(|call| match &call.request {
            HostRequest::Heartbeat(request) => Some(request),
            _ => None,
        });
        heartbeats.map(|request| request.matches.iter().map(|it| (&*it.match_id, it.gives_up)).collect()).collect()
    }

    fn states(&self) -> Vec<(&str, pb::HostedMatchState)> {
        let matches = self.outcomes.iter().filter_map(|outcome| match outcome {
            HostingOutcome::Match(hosted) => Some((&*hosted.match_id, hosted.state())),
            _ => None,
        });
        matches.collect()
    }
}

fn hosted(match_id: &str, state: pb::HostedMatchState) -> pb::HostedMatch {
    pb::HostedMatch { match_id: match_id.into(), state: state.into(), ..Default::default() }
}

fn beat(matches: &[pb::HostedMatch], ids: &[&str]) -> HostAnswer {
    HostAnswer::Heartbeat(Box::new(pb::QueueHostHeartbeatResponse {
        matches: matches.to_vec(),
        hosted_match_ids: ids.iter().map(|&id| id.to_owned()).collect(),
        next_beat_in_ms: 5_000,
    }))
}

fn error(code: Code) -> CallError {
    CallError { code, reason: pb::ErrorReason::Unspecified, retry_after_ms: None, message: String::new() }
}

fn report(match_id: &str) -> HostingEvent {
    let team_ranks = vec![pb::TeamRank { team: 0, rank: 1 }, pb::TeamRank { team: 1, rank: 2 }];
    HostingEvent::Report(Box::new(pb::ReportResultRequest {
        match_id: match_id.into(),
        team_ranks,
        ..Default::default()
    }))
}

/// A new match is confirmed at once, told once for each change, and named until it has ended.
#[test]
fn host_confirms_matches_and_keeps_them_alive() {
    use pb::HostedMatchState::{Confirming, Ended, Playing};
    let mut scene = Scene::new();
    scene.answer(Ok(beat(&[], &["one"])));
    assert_eq!(scene.beats(), [vec![], vec![("one", false)]]);
    let confirming = pb::HostedMatch { confirm_in_ms: Some(900), ..hosted("one", Confirming) };
    scene.answer(Ok(beat(std::slice::from_ref(&confirming), &["one"])));
    for state in [Confirming, Playing, Playing, Ended] {
        let before = scene.calls.len();
        scene.pass(Duration::from_millis(4_999));
        assert_eq!(scene.calls.len(), before, "at the time that the server names");
        scene.pass(Duration::from_millis(1));
        assert_eq!(scene.beats().last().unwrap(), &[("one", false)]);
        scene.answer(Ok(beat(&[hosted("one", state)], &[])));
    }
    assert_eq!(scene.states(), [("one", Confirming), ("one", Playing), ("one", Ended)]);
    scene.pass(Duration::from_secs(5));
    assert!(scene.beats().last().unwrap().is_empty());
    assert_eq!(scene.hosting.hosted_match_ids().count(), 0);
}

/// A match that the server names and does not let the host confirm leads to no loop of heartbeats.
#[test]
fn host_confirms_a_match_once_per_heartbeat() {
    let mut scene = Scene::new();
    for _ in 0..3 {
        scene.answer(Ok(beat(&[], &["one"])));
        assert_eq!(scene.beats().last().unwrap(), &[("one", false)]);
        scene.answer(Ok(beat(&[hosted("one", pb::HostedMatchState::NotHosted)], &["one"])));
        let before = scene.calls.len();
        scene.pass(Duration::from_millis(4_000));
        assert_eq!(scene.calls.len(), before);
        scene.pass(Duration::from_millis(1_000));
    }
}

/// Heartbeats go on through an outage of any length, about one a second; another process finds its matches by them.
#[test]
fn host_goes_on_after_an_outage() {
    let mut scene = Scene::playing();
    let before = scene.calls.len();
    scene.pass(Duration::from_secs(5));
    for _ in 0..100 {
        scene.answer(Err(error(Code::Unavailable)));
        scene.pass(Duration::from_secs(1));
    }
    assert!((100..=102).contains(&(scene.calls.len() - before)), "{}", scene.calls.len() - before);
    // Heartbeats that are not answered at all: each counts as lost after 6 s.
    scene.pass(Duration::from_secs(600));
    assert!(scene.calls.len() - before < 220);
    assert_eq!(scene.hosting.state(), HostingState::Hosting);
    assert_eq!(scene.beats().last().unwrap(), &[("one", false)]);

    let mut scene = Scene::new();
    let slow = CallError { retry_after_ms: Some(20_000), ..error(Code::ResourceExhausted) };
    scene.answer(Err(slow));
    scene.pass(Duration::from_millis(19_999));
    assert_eq!(scene.calls.len(), 1, "the server asks for a longer pause");
    scene.pass(Duration::from_millis(1));
    assert_eq!(scene.calls.len(), 2);
    scene.answer(Err(error(Code::PermissionDenied)));
    let end = HostEnd::Failed(error(Code::PermissionDenied));
    assert_eq!(scene.outcomes, [HostingOutcome::Ended(end)]);
}

/// A host of more matches than a heartbeat may name confirms all of them and keeps all alive: the rest follows at once. One that is given up is
/// named first. A list of 256 matches is full, which is one outcome.
#[test]
fn host_of_many_matches_names_all_of_them_by_turns() {
    use pb::HostedMatchState::{NotHosted, Playing};
    let ids: Vec<String> = (0..600).map(|number| format!("match {number:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut scene = Scene::new();
    let mut listed: &[&str] = &ids[..256];
    let answer_round = |scene: &mut Scene, listed: &[&str]| {
        let mut named = Vec::new();
        loop {
            let matches: Vec<(String, bool)> =
                scene.beats().last().unwrap().iter().map(|(id, gives_up)| ((*id).to_owned(), *gives_up)).collect();
            let state = |gives_up| if gives_up { NotHosted } else { Playing };
            let hosted: Vec<_> = matches.iter().map(|(id, gives_up)| hosted(id, state(*gives_up))).collect();
            let before = scene.beats().len();
            scene.answer(Ok(beat(&hosted, listed)));
            named.push(matches);
            if scene.beats().len() == before {
                return named;
            }
        }
    };
    for next in [&ids[256..512], &ids[512..], &[]] {
        answer_round(&mut scene, listed);
        assert!(listed.iter().all(|id| scene.hosting.hosted_match_ids().any(|hosted| hosted == *id)));
        listed = next;
        scene.pass(Duration::from_secs(5));
    }
    assert_eq!(scene.hosting.hosted_match_ids().count(), ids.len());
    let full = HostingOutcome::ListFull { matches_max: 256 };
    assert_eq!(scene.outcomes.iter().filter(|outcome| **outcome == full).count(), 1, "the third list is not full");
    answer_round(&mut scene, &[]);
    scene.handle(HostingEvent::GiveUp { match_id: ids[599].into() });
    let round = answer_round(&mut scene, &[]);
    assert_eq!(round.iter().map(Vec::len).collect::<Vec<_>>(), [256, 256, 88]);
    assert_eq!(round[0][0], (ids[599].to_owned(), true));
    let mut named: Vec<&str> = round.iter().flatten().map(|(id, _)| &**id).collect();
    named.sort_unstable();
    assert_eq!(named, ids);
    assert_eq!(scene.hosting.hosted_match_ids().count(), ids.len() - 1);
}

/// A heartbeat is sent at once for news and for a match that is given up, also when one is underway.
#[test]
fn host_beats_at_once_for_news() {
    let mut scene = Scene::playing();
    let before = scene.beats().len();
    scene.handle(HostingEvent::MatchesChanged);
    scene.handle(HostingEvent::GiveUp { match_id: "one".into() });
    assert_eq!(scene.beats().len(), before + 1);
    scene.answer(Ok(beat(&[hosted("one", pb::HostedMatchState::Playing)], &[])));
    assert_eq!(scene.beats()[before..], [vec![("one", false)], vec![("one", true)]]);
    scene.answer(Ok(beat(&[hosted("one", pb::HostedMatchState::NotHosted)], &[])));
    assert_eq!(scene.states().last().unwrap().1, pb::HostedMatchState::NotHosted);
}

/// Reports and ends carry the advertisement's token, are repeated through an outage, and lead to outcomes with their match.
#[test]
fn host_reports_and_ends_matches() {
    let mut scene = Scene::playing();
    scene.handle(report("one"));
    let HostRequest::ReportResult(request) = scene.calls.last().unwrap().request.clone() else { panic!("a report") };
    assert_eq!((request.advertisement_token.as_slice(), request.team_ranks.len()), (b"secret token".as_slice(), 2));
    let id = scene.calls.last().unwrap().id;
    let outage = || HostingEvent::Answer { id, result: Err(error(Code::Unavailable)) };
    for _ in 0..10 {
        scene.handle(outage());
        scene.pass(Duration::from_secs(5));
    }
    let response = Box::new(pb::ReportResultResponse { rated: true, ..Default::default() });
    let result = Ok(HostAnswer::ReportResult(response.clone()));
    scene.handle(HostingEvent::Answer { id, result });
    assert_eq!(scene.outcomes.last(), Some(&HostingOutcome::Reported { match_id: "one".into(), response }));

    scene.handle(HostingEvent::EndMatch { match_id: "one".into(), failed: true });
    let HostRequest::EndMatch(request) = scene.calls.last().unwrap().request.clone() else { panic!("an end") };
    assert!(request.failed && request.advertisement_token == b"secret token");
    let end_reason = pb::MatchEndReason::ServerFailed;
    scene.answer(Ok(HostAnswer::EndMatch(pb::QueueEndMatchResponse { end_reason: end_reason.into() })));
    assert_eq!(scene.outcomes.last(), Some(&HostingOutcome::MatchEnded { match_id: "one".into(), end_reason }));
    scene.handle(report("one"));
    scene.answer(Err(error(Code::FailedPrecondition)));
    let refused = HostingOutcome::Refused { match_id: "one".into(), error: error(Code::FailedPrecondition) };
    assert_eq!(scene.outcomes.last(), Some(&refused));
    for _ in 0..1_000 {
        scene.handle(report("one"));
    }
    let is_full = |outcome: &&HostingOutcome| matches!(outcome, HostingOutcome::Refused { error, .. } if error.code == Code::ResourceExhausted);
    assert!(scene.outcomes.iter().filter(is_full).count() >= 400, "a bounded number is underway");
}

/// A stop awaits the report underway, for at most 10 s, and no heartbeat.
#[test]
fn host_stops() {
    let mut scene = Scene::playing();
    scene.handle(report("one"));
    scene.handle(HostingEvent::Stop);
    assert_eq!(scene.hosting.state(), HostingState::Ending);
    scene.answer(Ok(HostAnswer::ReportResult(Box::default())));
    assert_eq!(scene.outcomes.last(), Some(&HostingOutcome::Ended(HostEnd::Stopped)));
    let mut scene = Scene::playing();
    scene.handle(report("one"));
    scene.handle(HostingEvent::Stop);
    scene.pass(Duration::from_secs(10));
    assert_eq!(scene.outcomes.last(), Some(&HostingOutcome::Ended(HostEnd::Stopped)));
    let mut scene = Scene::new();
    scene.handle(HostingEvent::Stop);
    assert_eq!(scene.hosting.state(), HostingState::Ended);
    scene.handle(HostingEvent::Start);
    scene.handle(report("one"));
    assert_eq!((scene.calls.len(), scene.hosting.poll_timeout()), (1, None));
    assert_eq!(refused_with(&scene), Some(("one", Code::Cancelled)));
}

/// Match and code of the last refusal, if it is the last outcome but for an end.
fn refused_with(scene: &Scene) -> Option<(&str, Code)> {
    let is_end = |outcome: &&HostingOutcome| matches!(outcome, HostingOutcome::Ended(_));
    match scene.outcomes.iter().rev().find(|outcome| !is_end(outcome))? {
        HostingOutcome::Refused { match_id, error } => Some((match_id, error.code)),
        _ => None,
    }
}

/// A result that cannot be sent any longer is refused: after a stop without an answer, and after a heartbeat that failed for good.
#[test]
fn host_says_which_results_are_lost() {
    let mut scene = Scene::playing();
    scene.handle(report("one"));
    scene.handle(HostingEvent::Stop);
    scene.pass(Duration::from_secs(10));
    assert_eq!(refused_with(&scene), Some(("one", Code::DeadlineExceeded)));
    scene.handle(HostingEvent::EndMatch { match_id: "two".into(), failed: false });
    assert_eq!(refused_with(&scene), Some(("two", Code::Cancelled)));
}

/// An id that is none of this host's matches is not sent: the server would refuse the heartbeat of all.
#[test]
fn host_does_not_give_up_unknown_matches() {
    let mut scene = Scene::playing();
    scene.handle(HostingEvent::GiveUp { match_id: "match-7".into() });
    assert_eq!(refused_with(&scene), Some(("match-7", Code::NotFound)));
    assert_eq!(scene.hosting.hosted_match_ids().collect::<Vec<_>>(), ["one"]);
}

/// Debug output has no token.
#[test]
fn debug_output_of_a_host_has_no_secret() {
    let mut scene = Scene::playing();
    scene.handle(report("one"));
    scene.handle(HostingEvent::EndMatch { match_id: "one".into(), failed: false });
    let text = format!("{:?} {:?} {:?}", scene.hosting, scene.calls, scene.outcomes);
    for secret in ["secret token".to_owned(), format!("{:?}", b"secret token")] {
        assert!(!text.contains(&secret), "{text}");
    }
}

fn events() -> impl Strategy<Value = (u64, HostingEvent)> {
    use pb::HostedMatchState::{Confirming, Ended, NotHosted, Playing};
    let states = proptest::sample::select(vec![Confirming, Playing, Ended, NotHosted]);
    let names = || proptest::sample::select(vec!["one", "two", "three"]);
    let beats = (names(), states, proptest::collection::vec(names(), 0..4))
        .prop_map(|(id, state, ids)| beat(&[hosted(id, state)], &ids));
    let answer = prop_oneof![
        4 => beats,
        1 => Just(HostAnswer::EndMatch(pb::QueueEndMatchResponse::default())),
        1 => Just(HostAnswer::ReportResult(Box::default())),
    ];
    let failure = proptest::sample::select(vec![Code::Unavailable, Code::NotFound, Code::FailedPrecondition]);
    let result = prop_oneof![3 => answer.prop_map(Ok), 1 => failure.prop_map(|code| Err(error(code)))];
    let event = prop_oneof![
        6 => (0..8_u64, result).prop_map(|(id, result)| HostingEvent::Answer { id: CallId(id), result }),
        1 => names().prop_map(|id| HostingEvent::GiveUp { match_id: id.into() }),
        1 => (names(), any::<bool>()).prop_map(|(id, failed)| HostingEvent::EndMatch { match_id: id.into(), failed }),
        1 => names().prop_map(report),
        1 => Just(HostingEvent::MatchesChanged),
        1 => Just(HostingEvent::Timeout),
    ];
    (0..20_000_u64, event)
}

proptest! {
    /// In any order of events the host waits with a timer, has one heartbeat underway at most, and ends within 10 s of a stop.
    #[test]
    fn host_ends_in_any_order_of_events(events in proptest::collection::vec(events(), 0..40)) {
        let mut scene = Scene::new();
        for (after_ms, event) in events {
            scene.pass(Duration::from_millis(after_ms));
            scene.handle(event);
        }
        scene.handle(HostingEvent::Stop);
        scene.pass(Duration::from_secs(10));
        prop_assert_eq!(scene.hosting.state(), HostingState::Ended);
        let ended = scene.outcomes.iter().filter(|outcome| matches!(outcome, HostingOutcome::Ended(_))).count();
        prop_assert_eq!(ended, 1);
        scene.pass(Duration::from_secs(300));
        prop_assert_eq!(scene.hosting.poll_timeout(), None);
    }
}

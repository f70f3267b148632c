//! State machine of a host of matches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::Code;

use crate::match_hosting::call::{HostAnswer, HostCall, HostRequest};
use crate::match_hosting::event::{HostEnd, HostingEvent, HostingOutcome, HostingState};
use crate::match_hosting::hosted_matches::{HostedMatches, MATCHES_PER_HEARTBEAT_MAX};
use crate::matching::call_table::{CallTable, SettledCall};
use crate::matching::{CallError, CallId, MonotonicTime};
use crate::pb;

/// Shortest and longest time between two heartbeats.
const HEARTBEAT_INTERVAL_RANGE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
/// Longest pause after a heartbeat that failed, unless the server asks for a longer one.
const HEARTBEAT_RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest time for the calls underway after a stop.
const ENDING_TIME_MAX: Duration = Duration::from_secs(10);
/// Calls underway. Ends and reports above it are refused.
const CALLS_MAX: usize = 512;
/// Transitions of one event; more would be an endless loop.
const TRANSITIONS_MAX: usize = 16;

/// Host of the matches of one advertisement, as a state machine. See the [module](crate::match_hosting) for its use.
pub struct MatchHosting {
    matches: HostedMatches,
    /// Matches that were given up while a heartbeat was underway, whose answer says nothing about that.
    late_give_ups: BTreeSet<String>,
    /// Matches as the game server heard of them last.
    last_told_matches: BTreeMap<String, pb::HostedMatch>,
    calls: CallTable<HostRequest>,
    outcomes: VecDeque<HostingOutcome>,
    rng: StdRng,
    state: State,
    now: MonotonicTime,
    heartbeat: Heartbeat,
    /// The game server knows that the list of matches is full.
    is_full_list_told: bool,
}

#[derive(Debug, PartialEq)]
enum State {
    Idle,
    Hosting,
    Ending { end: HostEnd, until: MonotonicTime },
    Ended,
}

/// Round of heartbeats.
#[derive(Debug, PartialEq)]
enum Heartbeat {
    /// The next round starts at `at`.
    Due { at: MonotonicTime },
    /// Underway. `again`: another round follows at once.
    Underway { call: CallId, again: bool },
}

impl MatchHosting {
    /// Host that waits for [`HostingEvent::Start`], for the advertisement with this token. The seed is 32 random bytes: pauses depend on it.
    pub fn new(advertisement_token: Vec<u8>, seed: [u8; 32]) -> Self {
        let now = MonotonicTime::default();
        Self {
            matches: HostedMatches::new(advertisement_token),
            late_give_ups: BTreeSet::new(),
            last_told_matches: BTreeMap::new(),
            calls: CallTable::default(),
            outcomes: VecDeque::new(),
            rng: StdRng::from_seed(seed),
            state: State::Idle,
            now,
            heartbeat: Heartbeat::Due { at: now },
            is_full_list_told: false,
        }
    }

    /// State.
    pub fn state(&self) -> HostingState {
        match self.state {
            State::Idle => HostingState::Idle,
            State::Hosting => HostingState::Hosting,
            State::Ending { .. } => HostingState::Ending,
            State::Ended => HostingState::Ended,
        }
    }

    /// Matches that this host has confirmed and that have not ended.
    pub fn hosted_match_ids(&self) -> impl Iterator<Item = &str> {
        self.matches.ids()
    }

    /// Takes an event. `now` is the time at which it happened; a time before that of an earlier event counts as that.
    pub fn handle(&mut self, event: HostingEvent, now: MonotonicTime) {
        self.now = self.now.max(now);
        match event {
            HostingEvent::Start if self.state == State::Idle => {
                self.state = State::Hosting;
                self.heartbeat = Heartbeat::Due { at: self.now };
            }
            HostingEvent::Answer { id, result } => {
                let jitter = self.rng.random();
                if let Ok(Some(call)) = self.calls.settle(id, result, self.now, jitter) {
                    self.on_settled(call);
                }
            }
            HostingEvent::MatchesChanged if self.state == State::Hosting => self.send_heartbeat_now(),
            // A heartbeat with an id that is none fails for all matches.
            HostingEvent::GiveUp { match_id } if !self.last_told_matches.contains_key(&match_id) => {
                let message = "this host has no such match".to_owned();
                let error = CallError { code: Code::NotFound, message, ..CallError::new_unanswered() };
                self.outcomes.push_back(HostingOutcome::Refused { match_id, error });
            }
            HostingEvent::GiveUp { match_id } if self.state == State::Hosting => {
                self.matches.give_up(&match_id);
                if let Heartbeat::Underway { .. } = self.heartbeat {
                    self.late_give_ups.insert(match_id);
                }
                self.send_heartbeat_now();
            }
            HostingEvent::EndMatch { match_id, failed } => {
                let advertisement_token = self.matches.advertisement_token().to_vec();
                let request = pb::QueueEndMatchRequest { match_id, advertisement_token, failed, ..Default::default() };
                self.call(HostRequest::EndMatch(request));
            }
            HostingEvent::Report(mut report) => {
                report.advertisement_token = self.matches.advertisement_token().to_vec();
                self.call(HostRequest::ReportResult(report));
            }
            HostingEvent::Stop if self.state == State::Idle || self.state == State::Hosting => {
                self.enter_ending_state(HostEnd::Stopped);
            }
            // Time has passed, or the event comes too early or too late.
            _ => {}
        }
        for _ in 0..TRANSITIONS_MAX {
            if !self.step() {
                break;
            }
        }
    }

    /// Call to make; `None` if there is none.
    pub fn poll_call(&mut self) -> Option<HostCall> {
        self.calls.poll().map(|(id, request)| HostCall { id, request })
    }

    /// News for the game server; `None` if there are none.
    pub fn poll_outcome(&mut self) -> Option<HostingOutcome> {
        self.outcomes.pop_front()
    }

    /// Time at which the host needs [`HostingEvent::Timeout`], unless another event comes first.
    pub fn poll_timeout(&self) -> Option<MonotonicTime> {
        let state_at = match (&self.state, &self.heartbeat) {
            (State::Hosting, Heartbeat::Due { at }) => Some(*at),
            (State::Ending { until, .. }, _) => Some(*until),
            _ => None,
        };
        [state_at, self.calls.next_timeout()].into_iter().flatten().min()
    }

    /// Makes one transition that is due. Returns whether there was one.
    fn step(&mut self) -> bool {
        let jitter = self.rng.random();
        if let Some(call) = self.calls.handle_due_attempts(self.now, jitter) {
            self.on_settled(call);
            return true;
        }
        match (&self.state, &self.heartbeat) {
            (State::Hosting, Heartbeat::Due { at }) if *at <= self.now => {
                // It names those that were given up until now.
                self.late_give_ups.clear();
                let request = HostRequest::Heartbeat(Box::new(self.matches.start_round()));
                let call = self.calls.start(request, self.now);
                self.heartbeat = Heartbeat::Underway { call, again: false };
                true
            }
            (State::Ending { until, .. }, _) if *until <= self.now || self.calls.is_empty() => {
                for request in self.calls.take_requests() {
                    self.refuse(request, CallError::new_unanswered());
                }
                if let State::Ending { end, .. } = std::mem::replace(&mut self.state, State::Ended) {
                    self.outcomes.push_back(HostingOutcome::Ended(end));
                }
                true
            }
            _ => false,
        }
    }

    fn on_settled(&mut self, call: SettledCall<HostRequest>) {
        let SettledCall { id, request, result } = call;
        match (request, result) {
            (HostRequest::Heartbeat(_), result) => self.on_heartbeat(id, result),
            (HostRequest::EndMatch(request), Ok(HostAnswer::EndMatch(response))) => {
                let (match_id, end_reason) = (request.match_id, response.end_reason());
                self.outcomes.push_back(HostingOutcome::MatchEnded { match_id, end_reason });
            }
            (HostRequest::ReportResult(request), Ok(HostAnswer::ReportResult(response))) => {
                self.outcomes.push_back(HostingOutcome::Reported { match_id: request.match_id, response });
            }
            (request, Err(error)) => self.refuse(request, error),
            (request, Ok(_)) => self.refuse(request, CallError::wrong_answer()),
        }
    }

    fn on_heartbeat(&mut self, id: CallId, result: Result<HostAnswer, CallError>) {
        let Heartbeat::Underway { call, again } = self.heartbeat else { return };
        if call != id || self.state != State::Hosting {
            return;
        }
        let [least, most] = HEARTBEAT_INTERVAL_RANGE;
        let pause = match result {
            Ok(HostAnswer::Heartbeat(response)) => {
                self.matches.take_response(&response);
                std::mem::take(&mut self.late_give_ups).iter().for_each(|id| self.matches.give_up(id));
                for hosted in response.matches {
                    self.tell(hosted);
                }
                self.tell_full_list();
                if let Some(request) = self.matches.next_of_round() {
                    let call = self.calls.start(HostRequest::Heartbeat(Box::new(request)), self.now);
                    self.heartbeat = Heartbeat::Underway { call, again };
                    return;
                }
                Duration::from_millis(response.next_beat_in_ms).clamp(least, most)
            }
            Err(error) if error.is_final() => return self.enter_ending_state(HostEnd::Failed(error)),
            Err(error) => {
                let pause = HEARTBEAT_RETRY_PAUSE_MAX.mul_f64(0.5 + self.rng.random::<f64>() / 2.0);
                pause.max(Duration::from_millis(error.retry_after_ms.unwrap_or(0)).min(most))
            }
            Ok(_) => HEARTBEAT_RETRY_PAUSE_MAX,
        };
        self.heartbeat = Heartbeat::Due { at: if again { self.now } else { self.now + pause } };
    }

    /// Tells that the list of matches is full, once until it is not.
    fn tell_full_list(&mut self) {
        let is_full = self.matches.is_list_full();
        if is_full && !self.is_full_list_told {
            self.outcomes.push_back(HostingOutcome::ListFull { matches_max: MATCHES_PER_HEARTBEAT_MAX });
        }
        self.is_full_list_told = is_full;
    }

    /// Tells a match that is new or has changed.
    fn tell(&mut self, hosted: pb::HostedMatch) {
        let known = pb::HostedMatch { confirm_in_ms: None, ..hosted.clone() };
        if self.last_told_matches.get(&hosted.match_id) == Some(&known) {
            return;
        }
        match hosted.state() {
            pb::HostedMatchState::Confirming | pb::HostedMatchState::Playing => {
                self.last_told_matches.insert(hosted.match_id.clone(), known);
            }
            _ => drop(self.last_told_matches.remove(&hosted.match_id)),
        }
        self.outcomes.push_back(HostingOutcome::Match(Box::new(hosted)));
    }

    fn send_heartbeat_now(&mut self) {
        match &mut self.heartbeat {
            Heartbeat::Due { at } => *at = self.now,
            Heartbeat::Underway { again, .. } => *again = true,
        }
    }

    fn call(&mut self, request: HostRequest) {
        let (code, message) = if self.state != State::Hosting {
            (Code::Cancelled, "the host has not started, or has stopped")
        } else if self.calls.len() < CALLS_MAX {
            self.calls.start(request, self.now);
            return;
        } else {
            (Code::ResourceExhausted, "too many calls underway; wait for their answers")
        };
        self.refuse(request, CallError { code, message: message.to_owned(), ..CallError::new_unanswered() });
    }

    fn refuse(&mut self, request: HostRequest, error: CallError) {
        let match_id = match request {
            HostRequest::EndMatch(request) => request.match_id,
            HostRequest::ReportResult(request) => request.match_id,
            HostRequest::Heartbeat(_) => return,
        };
        self.outcomes.push_back(HostingOutcome::Refused { match_id, error });
    }

    /// Ends when the ends and reports underway are answered.
    fn enter_ending_state(&mut self, end: HostEnd) {
        self.calls.forget_unwanted(|_, request| matches!(request, HostRequest::Heartbeat(_)));
        self.state = State::Ending { end, until: self.now + ENDING_TIME_MAX };
    }
}

impl fmt::Debug for MatchHosting {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatchHosting")
            .field("matches", &self.matches)
            .field("state", &self.state)
            .field("heartbeat", &self.heartbeat)
            .finish_non_exhaustive()
    }
}

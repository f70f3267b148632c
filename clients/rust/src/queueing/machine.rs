//! State machine of the queue loop.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::matching::call_table::{CallTable, SettledCall};
use crate::matching::{CallError, CallId, MonotonicTime};
use crate::pb;
use crate::queueing::call::{QueueAnswer, QueueCall, QueueRequest};
use crate::queueing::event::{QueueEnd, QueueEvent, QueueOutcome, QueueingState};
use crate::queueing::saved::SavedTicket;
use crate::queueing::token_renewal::TokenRenewal;
use crate::retry::RetryPolicy;

/// TTL of a ticket until the server has told one.
const TTL_DEFAULT: Duration = Duration::from_secs(60);
/// Pause before the game connects again, and attempts after which the party leaves the match.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);
const CONNECT_ATTEMPTS: u32 = 5;
/// Longest time for leaving. Later the ticket expires.
const ENDING_TIME: Duration = Duration::from_secs(10);
/// Transitions of one event; more would be an endless loop.
const TRANSITIONS_MAX: usize = 16;

/// Queue loop of one party, as a state machine. See the [module](crate::queueing) for its use.
pub struct Queueing {
    saved: SavedTicket,
    calls: CallTable<QueueRequest>,
    outcomes: VecDeque<QueueOutcome>,
    rng: StdRng,
    state: State,
    watch: Watch,
    now: MonotonicTime,
    /// Last time at which the server told that the ticket lives.
    heard_at: MonotonicTime,
    status: Option<pb::TicketStatus>,
    /// Match of the last ready check that the game heard of.
    asked_match_id: String,
    connect_attempts: u32,
    report_call: Option<CallId>,
    /// Whether the request to enter may have been made before, with the token that it has.
    is_restored: bool,
    token_renewal: TokenRenewal,
}

#[derive(Debug, PartialEq)]
enum State {
    Idle,
    Entering {
        call: CallId,
    },
    Watching,
    /// `again_at`: the game could not connect, and is asked again then.
    Connecting {
        again_at: Option<MonotonicTime>,
    },
    Playing,
    Ending {
        end: QueueEnd,
        until: MonotonicTime,
    },
    Ended,
}

/// Watch of the ticket.
#[derive(Debug)]
enum Watch {
    /// None is open.
    NotNeeded,
    /// The caller is to open one, in the place of an earlier one.
    Wanted,
    /// Open. `until`: silent for too long then.
    Open { until: MonotonicTime },
    /// Lost. The next one is opened at `until`.
    Backoff { until: MonotonicTime },
}

impl Queueing {
    /// Loop that waits for [`QueueEvent::Start`]. Leave the idempotency key of the request empty: it is made from the seed, which is 32
    /// bytes that no one can guess.
    pub fn new(mut request: pb::QueueEnterRequest, seed: [u8; 32]) -> Self {
        let mut rng = StdRng::from_seed(seed);
        if request.idempotency_key.is_empty() {
            request.idempotency_key = format!("{:032x}", rng.random::<u128>());
        }
        Self::from_saved(SavedTicket { request, ..SavedTicket::default() }, rng, false)
    }

    /// Loop that goes on where [`Self::saved_bytes`] was called, also in another process. `None` if the bytes are of another version.
    pub fn from_saved_bytes(saved: &[u8], seed: [u8; 32]) -> Option<Self> {
        Some(Self::from_saved(SavedTicket::decode(saved)?, StdRng::from_seed(seed), true))
    }

    fn from_saved(saved: SavedTicket, rng: StdRng, is_restored: bool) -> Self {
        Self {
            saved,
            calls: CallTable::default(),
            outcomes: VecDeque::new(),
            rng,
            state: State::Idle,
            watch: Watch::NotNeeded,
            now: MonotonicTime::default(),
            heard_at: MonotonicTime::default(),
            status: None,
            asked_match_id: String::new(),
            connect_attempts: 0,
            report_call: None,
            is_restored,
            token_renewal: TokenRenewal::default(),
        }
    }

    /// Bytes for [`Self::from_saved_bytes`]. Save them when the game has a new status. They contain the ticket's token: keep them secret.
    pub fn saved_bytes(&self) -> Vec<u8> {
        self.saved.encode()
    }

    /// Whether the ticket has been entered.
    pub fn is_entered(&self) -> bool {
        !self.saved.ticket.ticket_id.is_empty()
    }

    /// Whether a latency token is of use: the ticket is to be entered, or waits for a match.
    pub fn needs_latency_token(&self) -> bool {
        matches!(self.state, State::Idle | State::Entering { .. } | State::Watching)
    }

    /// State.
    pub fn state(&self) -> QueueingState {
        match self.state {
            State::Idle => QueueingState::Idle,
            State::Entering { .. } => QueueingState::Entering,
            State::Watching => QueueingState::Watching,
            State::Connecting { .. } => QueueingState::Connecting,
            State::Playing => QueueingState::Playing,
            State::Ending { .. } => QueueingState::Ending,
            State::Ended => QueueingState::Ended,
        }
    }

    /// Latest status of the ticket.
    pub fn status(&self) -> Option<&pb::TicketStatus> {
        self.status.as_ref()
    }

    /// Takes an event. `now` is the time at which it happened; a time before that of an earlier event counts as that.
    pub fn handle(&mut self, event: QueueEvent, now: MonotonicTime) {
        self.now = self.now.max(now);
        match event {
            QueueEvent::Start => self.start(),
            QueueEvent::Answer { id, result } => {
                let jitter = self.rng.random();
                match self.calls.settle(id, result, self.now, jitter) {
                    Ok(Some(call)) => self.on_call_settled(call),
                    Ok(None) => {}
                    Err(late_answer) => self.on_late_answer(late_answer),
                }
            }
            QueueEvent::Status(status) => self.on_status(*status),
            QueueEvent::WatchEnded(error) => self.on_watch_ended(error),
            QueueEvent::Timeout => {}
            QueueEvent::Respond { match_id, accept } => self.respond_to_ready_check(match_id, accept),
            QueueEvent::Connected => self.on_connected(true),
            QueueEvent::ConnectFailed => self.on_connected(false),
            QueueEvent::Report(team_ranks) => self.report_result(team_ranks),
            QueueEvent::LatencyToken(token) => self.take_latency_token(token.0),
            QueueEvent::Cancel => self.leave(QueueEnd::Cancelled),
        }
        for _ in 0..TRANSITIONS_MAX {
            if !self.step() {
                break;
            }
        }
    }

    /// Call to make; `None` if there is none.
    pub fn poll_call(&mut self) -> Option<QueueCall> {
        self.calls.poll().map(|(id, request)| QueueCall { id, request })
    }

    /// Watch to open now, in the place of an earlier one; `None` if the open one goes on, or none is needed.
    pub fn poll_watch(&mut self) -> Option<pb::QueueWatchRequest> {
        if !matches!(self.watch, Watch::Wanted) {
            return None;
        }
        self.watch = Watch::Open { until: self.now + self.ttl() };
        let latency_token = self.token_renewal.take_to_send();
        Some(pb::QueueWatchRequest { tickets: vec![self.saved.ticket.clone()], latency_token })
    }

    /// Request to the game, or news for it; `None` if there is none.
    pub fn poll_outcome(&mut self) -> Option<QueueOutcome> {
        self.outcomes.pop_front()
    }

    /// Time at which the loop needs [`QueueEvent::Timeout`], unless another event comes first.
    pub fn poll_timeout(&self) -> Option<MonotonicTime> {
        let state_at = match self.state {
            State::Connecting { again_at } => again_at,
            State::Ending { until, .. } => Some(until),
            _ => None,
        };
        let watch_at = match self.watch {
            Watch::Open { until } | Watch::Backoff { until } => Some(until),
            Watch::NotNeeded | Watch::Wanted => None,
        };
        [state_at, watch_at, self.renewal_at(), self.calls.next_timeout()].into_iter().flatten().min()
    }

    /// Time at which a heartbeat with a latency token is due. Without an open watch the next one has the token.
    fn renewal_at(&self) -> Option<MonotonicTime> {
        let can_renew = self.state == State::Watching && matches!(self.watch, Watch::Open { .. });
        self.token_renewal.due_at().filter(|_| can_renew)
    }

    fn start(&mut self) {
        if self.state != State::Idle {
            return;
        }
        self.heard_at = self.now;
        if self.saved.ticket.ticket_id.is_empty() {
            let request = QueueRequest::Enter(Box::new(self.saved.request.clone()));
            self.state = State::Entering { call: self.calls.start(request, self.now) };
        } else {
            // The status itself is needed again, not only changes of it.
            self.saved.ticket.resume_token.clear();
            self.state = State::Watching;
            self.watch = Watch::Wanted;
        }
    }

    /// Makes one transition that is due. Returns whether there was one.
    fn step(&mut self) -> bool {
        let jitter = self.rng.random();
        if let Some(call) = self.calls.handle_due_attempts(self.now, jitter) {
            self.on_call_settled(call);
            return true;
        }
        match (&self.state, &self.watch) {
            (State::Ending { until, .. }, _) if *until <= self.now || self.calls.is_empty() => {
                if let State::Ending { end, .. } = std::mem::replace(&mut self.state, State::Ended) {
                    self.outcomes.push_back(QueueOutcome::Ended(end));
                }
                true
            }
            (State::Connecting { again_at: Some(at) }, _) if *at <= self.now => {
                self.connect();
                true
            }
            (_, Watch::Open { until }) if *until <= self.now => {
                self.on_watch_ended(Some(CallError::new_unanswered()));
                true
            }
            (_, Watch::Backoff { until }) if *until <= self.now => {
                self.watch = Watch::Wanted;
                true
            }
            _ if self.renewal_at().is_some_and(|at| at <= self.now) => {
                self.renew_round_trips();
                true
            }
            _ => false,
        }
    }

    fn on_call_settled(&mut self, call: SettledCall<QueueRequest>) {
        let SettledCall { id, request, result } = call;
        let is_entering = self.state == State::Entering { call: id };
        match (request, result) {
            (QueueRequest::Enter(_), Ok(QueueAnswer::Enter(entered))) if is_entering => self.on_entered(*entered),
            (QueueRequest::Enter(_), Err(error)) if is_entering => self.start_ending(QueueEnd::Failed(error)),
            (QueueRequest::Respond(_), Ok(QueueAnswer::Respond(response))) => {
                response.status.into_iter().for_each(|status| self.on_status(status));
            }
            (QueueRequest::ReportResult(_), _) if self.report_call == Some(id) => {
                self.report_call = None;
                self.end_if_over();
            }
            (QueueRequest::Heartbeat(_), result) if self.token_renewal.is_call(id) => {
                self.token_renewal.on_ended(result.err(), self.now);
            }
            (_, Ok(answer)) => self.on_late_answer(answer),
            // A reply that comes too late or a ticket that is gone: the watch tells what became of it.
            (_, Err(_)) => {}
        }
    }

    fn on_entered(&mut self, entered: pb::QueueEnterResponse) {
        let Some(status) = entered.status else {
            return self.start_ending(QueueEnd::Failed(CallError::wrong_answer()));
        };
        self.saved.ticket.ticket_id.clone_from(&status.ticket_id);
        self.saved.ticket.ticket_token = entered.ticket_token;
        self.saved.ttl_ms = entered.expires_in_ms;
        self.state = State::Watching;
        self.watch = Watch::Wanted;
        self.on_status(status);
    }

    /// A ticket that was entered after the end is left.
    fn on_late_answer(&mut self, answer: QueueAnswer) {
        if let QueueAnswer::Enter(entered) = answer
            && let Some(status) = entered.status
            && status.ticket_id != self.saved.ticket.ticket_id
        {
            self.call_leave(status.ticket_id, entered.ticket_token);
        }
    }

    fn on_status(&mut self, status: pb::TicketStatus) {
        let is_watching = matches!(self.state, State::Watching | State::Connecting { .. } | State::Playing);
        if !is_watching || status.ticket_id != self.saved.ticket.ticket_id {
            return;
        }
        self.heard_at = self.now;
        if let Watch::Open { .. } = self.watch {
            self.watch = Watch::Open { until: self.now + self.ttl() };
        }
        if !status.resume_token.is_empty() {
            self.saved.ticket.resume_token.clone_from(&status.resume_token);
        }
        self.status = Some(status.clone());
        self.outcomes.push_back(QueueOutcome::Status(Box::new(status.clone())));
        match (status.state(), status.found_match) {
            (pb::TicketState::Proposed, Some(found)) if found.match_id != self.asked_match_id => {
                self.asked_match_id.clone_from(&found.match_id);
                self.outcomes.push_back(QueueOutcome::ReadyCheck(Box::new(found)));
            }
            (pb::TicketState::Matched, Some(_)) if self.state == State::Watching => self.connect(),
            (pb::TicketState::Waiting | pb::TicketState::Paused, _) => {
                // The match fell through, and the party waits again.
                self.state = State::Watching;
                self.connect_attempts = 0;
            }
            _ => self.end_if_over(),
        }
    }

    fn on_watch_ended(&mut self, error: Option<CallError>) {
        if !matches!(self.watch, Watch::Open { .. }) {
            return;
        }
        if let Some(error) = error.as_ref() {
            if error.reason == pb::ErrorReason::TicketNotFound {
                return self.start_ending(QueueEnd::Lost);
            }
            if error.is_final() {
                return self.start_ending(QueueEnd::Failed(error.clone()));
            }
        }
        // A match that is played goes on without a watch; a ticket that waits does not.
        let is_played = matches!(self.state, State::Connecting { .. } | State::Playing);
        let unheard = self.now.since(self.heard_at);
        if !is_played && self.ttl() <= unheard {
            return self.start_ending(QueueEnd::Lost);
        }
        let policy = RetryPolicy { max_attempts: u32::MAX, ..RetryPolicy::default() };
        let retry_after = error.and_then(|error| error.retry_after_ms).map(Duration::from_millis);
        // The longer the outage, the longer the pause: a quarter of its length, within the policy's bounds.
        let grown = policy.initial_backoff.max(unheard / 4).min(policy.max_backoff);
        let pause = grown.mul_f64(0.5 + self.rng.random::<f64>() / 2.0).max(retry_after.unwrap_or_default());
        let expires_at = self.heard_at + self.ttl();
        let until = self.now + pause;
        self.watch = Watch::Backoff { until: if is_played { until } else { until.min(expires_at) } };
    }

    fn respond_to_ready_check(&mut self, match_id: String, accept: bool) {
        let is_asked = self.status.as_ref().is_some_and(|status| {
            status.state() == pb::TicketState::Proposed
                && status.found_match.as_ref().is_some_and(|found| found.match_id == match_id)
        });
        if is_asked && self.state == State::Watching {
            let pb::TicketReference { ticket_id, ticket_token, .. } = self.saved.ticket.clone();
            let user_ids = Vec::new();
            let request = pb::QueueRespondRequest { ticket_id, ticket_token, match_id, accept, user_ids };
            self.calls.start(QueueRequest::Respond(request), self.now);
        }
    }

    fn connect(&mut self) {
        if let Some(found) = self.status.as_ref().and_then(|status| status.found_match.clone()) {
            self.connect_attempts += 1;
            self.state = State::Connecting { again_at: None };
            self.outcomes.push_back(QueueOutcome::Connect(Box::new(found)));
        }
    }

    fn on_connected(&mut self, is_connected: bool) {
        if !matches!(self.state, State::Connecting { again_at: None }) {
            return;
        }
        if is_connected {
            self.connect_attempts = 0;
            self.state = State::Playing;
        } else if self.connect_attempts < CONNECT_ATTEMPTS {
            self.state = State::Connecting { again_at: Some(self.now + CONNECT_PAUSE) };
        } else {
            self.leave(QueueEnd::CouldNotConnect);
        }
    }

    fn report_result(&mut self, team_ranks: Vec<pb::TeamRank>) {
        let found = self.status.as_ref().and_then(|status| status.found_match.as_ref());
        let (Some(found), State::Playing, None) = (found, &self.state, self.report_call) else { return };
        let request = pb::ReportResultRequest {
            match_id: found.match_id.clone(),
            team_ranks,
            ticket_token: self.saved.ticket.ticket_token.clone(),
            ..Default::default()
        };
        self.report_call = Some(self.calls.start(QueueRequest::ReportResult(request), self.now));
    }

    /// Takes a latency token: the request to enter has it, or a heartbeat.
    fn take_latency_token(&mut self, token: Vec<u8>) {
        let has_entered = self.state != State::Idle || self.is_restored;
        let is_new = self.token_renewal.set_latest(token.clone(), has_entered.then_some(self.now));
        if is_new && !has_entered {
            self.saved.request.session_composition.get_or_insert_default().latency_token = token;
        }
    }

    fn renew_round_trips(&mut self) {
        let (tickets, latency_token) = (vec![self.saved.ticket.clone()], self.token_renewal.take_to_send());
        let request = pb::QueueHeartbeatRequest { tickets, latency_token, ..Default::default() };
        self.token_renewal.on_started(self.calls.start(QueueRequest::Heartbeat(request), self.now));
    }

    /// Ends when the ticket has ended, the own report is sent, and no report of others is awaited.
    fn end_if_over(&mut self) {
        let Some(status) = self.status.as_ref().filter(|status| status.state() == pb::TicketState::Ended) else {
            return;
        };
        let reports = status.found_match.as_ref().and_then(|found| found.reports.as_ref());
        let awaits_reports = reports.is_some_and(|reports| reports.state() == pb::ReportState::Waiting);
        if !awaits_reports && self.report_call.is_none() {
            let reason = status.end_reason();
            self.start_ending(QueueEnd::Ticket(reason));
        }
    }

    /// Leaves the queue or the match, and ends.
    fn leave(&mut self, end: QueueEnd) {
        if matches!(self.state, State::Ending { .. } | State::Ended) {
            return;
        }
        if !self.saved.ticket.ticket_id.is_empty() {
            let pb::TicketReference { ticket_id, ticket_token, .. } = self.saved.ticket.clone();
            self.call_leave(ticket_id, ticket_token);
        }
        self.start_ending(end);
    }

    fn call_leave(&mut self, ticket_id: String, ticket_token: Vec<u8>) {
        let request = pb::QueueLeaveRequest { ticket_id, ticket_token, user_ids: Vec::new() };
        self.calls.start(QueueRequest::Leave(request), self.now);
    }

    /// Ends when the calls underway are over: an enter whose answer says what to leave, and the leave itself.
    fn start_ending(&mut self, end: QueueEnd) {
        self.watch = Watch::NotNeeded;
        let is_unwanted =
            |request: &QueueRequest| matches!(request, QueueRequest::Respond(_) | QueueRequest::Heartbeat(_));
        self.calls.forget_unwanted(|_, request| is_unwanted(request));
        self.state = State::Ending { end, until: self.now + ENDING_TIME };
    }

    fn ttl(&self) -> Duration {
        if self.saved.ttl_ms == 0 { TTL_DEFAULT } else { Duration::from_millis(self.saved.ttl_ms) }
    }
}

impl fmt::Debug for Queueing {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queueing")
            .field("saved", &self.saved)
            .field("state", &self.state)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

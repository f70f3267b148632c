//! State machine of the search loop: events in, calls, packets and outcomes out. The folder has one file for each part of the loop.

mod choosing;
mod ending;
mod hosting;
mod joining;
mod probing;
mod searching;

use std::fmt;

use fireteam_probe::Verdict;

use crate::matching::call::{Answer, Call, CallError, Request};
use crate::matching::call_table::SettledCall;
use crate::matching::effects::Effects;
use crate::matching::event::Event;
use crate::matching::exclusions::TimedExclusions;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::options::{MatchingOptions, with_latency_token};
use crate::matching::outcome::{EndReason, Outcome, Transmit};
use crate::matching::search_memory::SearchMemory;
use crate::matching::stage::{JoinStep, MatchingState, ProbeStep, Stage};
use crate::pb;

/// Judgement of a host's game on the data of an involved probe: it may write data of its own for the answer, as long as the client's.
pub type ProberDataJudge = Box<dyn FnMut(&[u8], &mut Vec<u8>) -> Verdict + Send>;

/// Transitions that one call of `handle` may make; more would be an endless loop.
const TRANSITIONS_MAX: usize = 64;

/// Search loop of one party, as a state machine. See the [module](crate::matching) for its use.
pub struct Matching {
    options: MatchingOptions,
    effects: Effects,
    search_memory: SearchMemory,
    exclusions: TimedExclusions,
    stage: Stage,
    prober_data_judge: Option<ProberDataJudge>,
    /// Latency token of the client; empty for none.
    latency_token: Vec<u8>,
    now: MonotonicTime,
    started_at: MonotonicTime,
    /// Start of the rounds since the last draw.
    redraw_wait_started_at: MonotonicTime,
    /// Milliseconds until the limits of the search relax, as of the last answer.
    next_expansion_in_ms: Option<u64>,
    /// Searches in a row whose ruleset was stale.
    stale_in_a_row: u32,
}

impl Matching {
    /// Loop that waits for [`Event::Start`]. All random numbers come from the seed: take 32 bytes that no one can guess, since keys and
    /// nonces are made from them.
    pub fn new(options: MatchingOptions, seed: [u8; 32]) -> Self {
        Self {
            options,
            effects: Effects::new(seed),
            search_memory: SearchMemory::default(),
            exclusions: TimedExclusions::default(),
            stage: Stage::Idle,
            prober_data_judge: None,
            latency_token: Vec::new(),
            now: MonotonicTime::default(),
            started_at: MonotonicTime::default(),
            redraw_wait_started_at: MonotonicTime::default(),
            next_expansion_in_ms: None,
            stale_in_a_row: 0,
        }
    }

    /// Counts a packet of another loop of this client in the limit of 40 packets a second.
    pub fn record_packet_of_other_loop(&mut self, now: MonotonicTime) {
        self.effects.packet_budget.record_sent_packet(now);
    }

    /// Sets the game's judgement on the data of involved probes, while this client hosts. Without it, all data fits.
    pub fn set_prober_data_judge(&mut self, judge: ProberDataJudge) {
        self.prober_data_judge = Some(judge);
    }

    /// State.
    pub fn state(&self) -> MatchingState {
        self.stage.state()
    }

    /// Takes an event. `now` is the time at which it happened; a time before that of an earlier event counts as that.
    pub fn handle(&mut self, event: Event, now: MonotonicTime) {
        self.now = self.now.max(now);
        let now = self.now;
        match event {
            Event::Start => self.start(now),
            Event::BecomeHost(hosting) => self.become_host(*hosting, now),
            Event::HostMoved => self.host_moved(now),
            Event::Answer { id, result } => {
                let jitter = self.effects.jitter_fraction();
                match self.effects.calls.settle(id, result, now, jitter) {
                    Ok(Some(call)) => self.on_settled(call, now),
                    Ok(None) => {}
                    Err(late_answer) => self.on_stray_answer(id, late_answer, now),
                }
            }
            Event::Datagram { from, packet } => self.on_datagram(&packet, from, now),
            Event::Timeout => {}
            Event::Connected { reservation_id } => self.on_connected(&reservation_id),
            Event::ConnectFailed { reservation_id } => self.on_connect_failed(&reservation_id, now),
            Event::ConnectionLost => self.on_connection_lost(now),
            Event::SessionChanged { session, joined_reservation_ids } => {
                self.change_hosted_session(*session, joined_reservation_ids, now);
            }
            Event::ReservationChanged(event) => self.on_reservation_event(&event, now),
            Event::LatencyToken(token) => self.set_latency_token(token.0),
            Event::Cancel => self.end(EndReason::Cancelled, now),
        }
        self.run(now);
    }

    /// Call to make; `None` if there is none.
    pub fn poll_call(&mut self) -> Option<Call> {
        self.effects.calls.poll().map(|(id, request)| Call { id, request })
    }

    /// Datagram to send; `None` if there is none.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.effects.transmits.pop_front()
    }

    /// Request to the game, or news for it; `None` if there is none.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.effects.outcomes.pop_front()
    }

    /// Time at which the loop needs [`Event::Timeout`], unless another event comes first. `None`: it waits for events alone, which is so
    /// before the start, in a joined session, and after the end.
    pub fn poll_timeout(&self) -> Option<MonotonicTime> {
        let stage_at = match &self.stage {
            Stage::Quick { step: ProbeStep::Probing(phase), .. }
            | Stage::Involved { step: ProbeStep::Probing(phase), .. } => Some(phase.next_timeout(&self.effects)),
            Stage::Joining { step: JoinStep::Connecting { until, .. }, .. }
            | Stage::Waiting { until }
            | Stage::Ending { until, .. } => Some(*until),
            Stage::Advertising(advertising) => advertising.next_timeout(&self.options),
            _ => None,
        };
        [stage_at, self.effects.calls.next_timeout(), self.gives_up_at()].into_iter().flatten().min()
    }

    /// Party as requests have it: with the latency token, if there is one.
    fn party_with_latency_token(&self) -> pb::SessionCompositionData {
        with_latency_token(&self.options.party, &self.latency_token)
    }

    fn set_latency_token(&mut self, token: Vec<u8>) {
        if let Stage::Advertising(advertising) = &mut self.stage {
            advertising.renew_latency_token(token.clone());
        }
        self.latency_token = token;
    }

    /// Makes the transitions that are due.
    fn run(&mut self, now: MonotonicTime) {
        for _ in 0..TRANSITIONS_MAX {
            let jitter = self.effects.jitter_fraction();
            if let Some(call) = self.effects.calls.handle_due_attempts(now, jitter) {
                self.on_settled(call, now);
                continue;
            }
            if self.gives_up_at().is_some_and(|at| at <= now) {
                self.end(EndReason::GaveUp, now);
            }
            if !self.step(now) {
                break;
            }
        }
    }

    /// Makes the state's own transition, if it is due. Returns whether it made one.
    fn step(&mut self, now: MonotonicTime) -> bool {
        match &self.stage {
            Stage::Quick { step: ProbeStep::Probing(_), .. } | Stage::Involved { step: ProbeStep::Probing(_), .. } => {
                self.step_probes(now)
            }
            Stage::Joining { step: JoinStep::Connecting { seat, until }, .. } if *until <= now => {
                let reservation_id = seat.reservation.reservation_id.clone();
                self.on_connect_failed(&reservation_id, now);
                true
            }
            Stage::Waiting { until } if *until <= now => {
                self.next_round(now);
                true
            }
            Stage::Advertising(_) => self.step_advertising(now),
            Stage::Ending { until, .. } if *until <= now || self.effects.calls.is_empty() => {
                self.finish_ending();
                true
            }
            _ => false,
        }
    }

    /// Handles a call that is over.
    fn on_settled(&mut self, call: SettledCall<Request>, now: MonotonicTime) {
        let SettledCall { id, request, result } = call;
        let is_awaited = self.stage.awaited_call() == Some(id);
        match result {
            Ok(answer) if is_awaited => self.on_answer(answer, now),
            Ok(answer) => self.on_stray_answer(id, answer, now),
            Err(error) => {
                self.release_unknown_seat(&request, &error, now);
                if is_awaited {
                    self.on_error(&request, error, now);
                }
            }
        }
    }

    /// Handles the answer that the state waits for.
    fn on_answer(&mut self, answer: Answer, now: MonotonicTime) {
        match answer {
            Answer::ChooseAction(answer) => self.on_action(answer.action(), now),
            Answer::GetConfiguration(answer) => self.on_current_ruleset(answer.service_configuration_hash, now),
            Answer::Search(found) => self.on_found(&found, now),
            Answer::ReportLatency(report) => self.on_report(&report, now),
            Answer::Reserve(answer) => self.on_reserved(*answer, now),
            Answer::UpdateAdvertisement(answer) => self.on_updated(&answer, now),
            Answer::Release | Answer::DeleteAdvertisement => {}
        }
    }

    /// Handles the failure of the call that the state waits for.
    fn on_error(&mut self, request: &Request, error: CallError, now: MonotonicTime) {
        let is_stale = error.reason == pb::ErrorReason::StaleConfiguration;
        match request {
            Request::UpdateAdvertisement(_) => self.on_update_failed(error, now),
            Request::GetConfiguration(_) => self.on_current_ruleset_failed(error, now),
            _ if is_stale => self.fetch_current_ruleset(now),
            Request::ChooseAction(_) => self.on_action_failed(error, now),
            Request::Search(search) => self.on_search_failed(search.search_token.is_empty(), error, now),
            Request::ReportLatency(_) => self.on_report_dropped(now),
            Request::Reserve(reserve) => self.on_reserve_failed(&reserve.advertisement_id, &error, now),
            Request::Release(_) | Request::DeleteAdvertisement(_) => {}
        }
    }
}

impl fmt::Debug for Matching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matching").field("options", &self.options).field("stage", &self.stage).finish_non_exhaustive()
    }
}

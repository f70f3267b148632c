//! State machine of the measurement of beacons: events in, calls and packets out, and a latency token that is kept fresh.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::matching::call_table::{CallTable, SettledCall};
use crate::matching::{CallError, CallId, MonotonicTime, PacketBudget, Transmit};
use crate::pb;
use crate::probe::beacons::beacon_order::{self, GeoCoordinates};
use crate::probe::beacons::call::{BeaconsAnswer, BeaconsCall, BeaconsRequest};
use crate::probe::beacons::measurement::{BusyBeacon, Measurement};

/// Share of a token's life after which the client measures again: from the first to the second number at random, so that clients that
/// began together do not stay together.
const REFRESH_SHARE_RANGE: [f64; 2] = [0.7, 0.85];
/// Least time between the end of a measurement and the next.
const REST_MIN: Duration = Duration::from_secs(30);
/// Time until the next measurement after a call failed, and after a failure that lasts or a list without beacons.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);
const REST_WITHOUT_BEACONS: Duration = Duration::from_secs(600);
/// Longest pause that a server may ask for.
const SERVER_REST_MAX: Duration = Duration::from_secs(3_600);
/// Share by which a rest is longer at random.
const REST_JITTER: f64 = 0.2;
/// Transitions of one event; more would be an endless loop.
const TRANSITIONS_MAX: usize = 64;

/// Event for [`Beacons::handle`].
#[derive(Clone, Debug)]
pub enum BeaconsEvent {
    /// The client needs a token from now on. Only the first counts.
    Start,
    /// A call was answered, or failed.
    Answer {
        /// Number of the call.
        id: CallId,
        /// Its result.
        result: Result<BeaconsAnswer, CallError>,
    },
    /// A datagram arrived that [`is_probe`](crate::probe::is_probe) recognizes.
    Datagram {
        /// Source address.
        from: SocketAddr,
        /// The bytes.
        packet: Vec<u8>,
    },
    /// Time has passed.
    Timeout,
}

/// State of the measurement of beacons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconsState {
    /// Not started.
    Idle,
    /// Asks the server for the beacons.
    Listing,
    /// Exchanges packets with beacons: an answer counts from its arrival, so datagrams are to be read at once.
    Measuring,
    /// Reports the receipts.
    Reporting,
    /// Waits for the time of the next measurement.
    Resting,
}

/// Measurement of beacons, as a state machine. See the [module](crate::probe::beacons) for its use.
pub struct Beacons {
    own_place: Option<GeoCoordinates>,
    calls: CallTable<BeaconsRequest>,
    transmits: VecDeque<Transmit>,
    budget: PacketBudget,
    rng: StdRng,
    stage: Stage,
    now: MonotonicTime,
    busy: Vec<BusyBeacon>,
    token: Vec<u8>,
    token_until: MonotonicTime,
    has_token_changed: bool,
    report_response: Option<pb::ReportTripsResponse>,
    is_first_measurement_over: bool,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Listing {
        call: CallId,
    },
    Measuring(Measurement),
    /// The token's life counts from before the call.
    Reporting {
        call: CallId,
        started_at: MonotonicTime,
    },
    Resting {
        until: MonotonicTime,
    },
}

impl Beacons {
    /// Measurement that waits for [`BeaconsEvent::Start`]. The nonces of packets are made from the seed: take 32 bytes that no one can
    /// guess.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            own_place: None,
            calls: CallTable::default(),
            transmits: VecDeque::new(),
            budget: PacketBudget::default(),
            rng: StdRng::from_seed(seed),
            stage: Stage::Idle,
            now: MonotonicTime::default(),
            busy: Vec::new(),
            token: Vec::new(),
            token_until: MonotonicTime::default(),
            has_token_changed: false,
            report_response: None,
            is_first_measurement_over: false,
        }
    }

    /// Sets the client's place in degrees, if the game knows it: beacons are then ordered by their distance from it. Without it the
    /// server's choice is measured first. It is sent to no one.
    pub fn with_place(mut self, latitude: f64, longitude: f64) -> Self {
        let is_place = latitude.is_finite() && longitude.is_finite();
        self.own_place = is_place.then_some(GeoCoordinates { latitude, longitude });
        self
    }

    /// State.
    pub fn state(&self) -> BeaconsState {
        match self.stage {
            Stage::Idle => BeaconsState::Idle,
            Stage::Listing { .. } => BeaconsState::Listing,
            Stage::Measuring(_) => BeaconsState::Measuring,
            Stage::Reporting { .. } => BeaconsState::Reporting,
            Stage::Resting { .. } => BeaconsState::Resting,
        }
    }

    /// Takes an event. `now` is the time at which it happened; a time before that of an earlier event counts as that.
    pub fn handle(&mut self, event: BeaconsEvent, now: MonotonicTime) {
        self.now = self.now.max(now);
        match event {
            BeaconsEvent::Start => {
                if matches!(self.stage, Stage::Idle) {
                    self.ask_for_list();
                }
            }
            BeaconsEvent::Answer { id, result } => {
                let jitter = self.rng.random();
                if let Ok(Some(call)) = self.calls.settle(id, result, self.now, jitter) {
                    self.on_call_settled(call);
                }
            }
            BeaconsEvent::Datagram { from, packet } => self.on_datagram(&packet, from),
            BeaconsEvent::Timeout => {}
        }
        for _ in 0..TRANSITIONS_MAX {
            if !self.step() {
                break;
            }
        }
    }

    /// Call to make; `None` if there is none.
    pub fn poll_call(&mut self) -> Option<BeaconsCall> {
        self.calls.poll().map(|(id, request)| BeaconsCall { id, request })
    }

    /// Datagram to send; `None` if there is none. A proof is measured until it arrives: send it at once.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Token to send from now on, if it has changed since the last call; empty if the last one has expired.
    pub fn poll_token(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.has_token_changed).then(|| self.token.clone())
    }

    /// Time at which the measurement needs [`BeaconsEvent::Timeout`], unless another event comes first. `None` before the start.
    pub fn poll_timeout(&self) -> Option<MonotonicTime> {
        let stage_at = match &self.stage {
            Stage::Measuring(measurement) => Some(measurement.next_timeout(&self.budget)),
            Stage::Resting { until } => Some(*until),
            Stage::Idle | Stage::Listing { .. } | Stage::Reporting { .. } => None,
        };
        let token_at = (!self.token.is_empty()).then_some(self.token_until);
        [stage_at, token_at, self.calls.next_timeout()].into_iter().flatten().min()
    }

    /// Token to send as `SessionCompositionData.latency_token`; empty if there is none that is fresh.
    pub fn latency_token(&self) -> &[u8] {
        &self.token
    }

    /// Server's answer to the last report: its verdicts, and the round trips to regions.
    pub fn report_response(&self) -> Option<&pb::ReportTripsResponse> {
        self.report_response.as_ref()
    }

    /// Whether the first measurement is over, with a token or without.
    pub fn is_first_measurement_over(&self) -> bool {
        self.is_first_measurement_over
    }

    /// Counts a packet of another loop of this client in the limit of 40 packets a second.
    pub fn record_packet_of_other_loop(&mut self, now: MonotonicTime) {
        self.budget.record_sent_packet(now);
    }

    /// Makes one transition that is due. Returns whether there was one.
    fn step(&mut self) -> bool {
        if !self.token.is_empty() && self.token_until <= self.now {
            self.set_token(Vec::new());
        }
        let jitter = self.rng.random();
        if let Some(call) = self.calls.handle_due_attempts(self.now, jitter) {
            self.on_call_settled(call);
            return true;
        }
        match &mut self.stage {
            Stage::Measuring(measurement) => {
                let packet = measurement.poll(&self.budget, &mut self.rng, self.now);
                let is_over = measurement.is_over(self.now);
                let is_sent = packet.is_some();
                packet.into_iter().for_each(|packet| self.push_transmit(packet));
                if is_over {
                    self.report_receipts();
                }
                is_sent || is_over
            }
            Stage::Resting { until } if *until <= self.now => {
                self.ask_for_list();
                true
            }
            _ => false,
        }
    }

    fn push_transmit(&mut self, packet: Transmit) {
        self.budget.record_sent_packet(self.now);
        self.transmits.push_back(packet);
    }

    fn ask_for_list(&mut self) {
        let request = BeaconsRequest::GetBeacons(pb::GetBeaconsRequest {});
        self.stage = Stage::Listing { call: self.calls.start(request, self.now) };
    }

    fn on_call_settled(&mut self, call: SettledCall<BeaconsRequest>) {
        match (&self.stage, call.result) {
            (Stage::Listing { call: awaited }, Ok(BeaconsAnswer::GetBeacons(list))) if *awaited == call.id => {
                self.measure(&list);
            }
            (Stage::Reporting { call: awaited, started_at }, Ok(BeaconsAnswer::ReportTrips(report)))
                if *awaited == call.id =>
            {
                let started_at = *started_at;
                self.on_report(report, started_at);
            }
            (Stage::Listing { call: awaited } | Stage::Reporting { call: awaited, .. }, Err(error))
                if *awaited == call.id =>
            {
                self.on_failed(&error);
            }
            _ => {}
        }
    }

    fn measure(&mut self, list: &pb::GetBeaconsResponse) {
        let now = self.now;
        self.busy.retain(|busy| now < busy.until);
        let mut targets = beacon_order::targets_in_order(list, self.own_place, &mut self.rng);
        if targets.is_empty() {
            return self.rest(REST_WITHOUT_BEACONS);
        }
        targets.retain(|target| self.busy.iter().all(|busy| busy.beacon_id != target.beacon_id));
        self.stage = Stage::Measuring(Measurement::new(targets, list.beacons_wanted, now));
    }

    fn on_datagram(&mut self, packet: &[u8], from: SocketAddr) {
        if let Stage::Measuring(measurement) = &mut self.stage
            && let Some(proof) = measurement.handle(packet, from, &mut self.busy, self.now)
        {
            self.push_transmit(proof);
        }
    }

    /// Reports the receipts. Also without one, since the server may know the round trip of the connection.
    fn report_receipts(&mut self) {
        if let Stage::Measuring(measurement) = std::mem::replace(&mut self.stage, Stage::Idle) {
            let request = pb::ReportTripsRequest { receipts: measurement.finish(), claims: Vec::new() };
            let call = self.calls.start(BeaconsRequest::ReportTrips(request), self.now);
            self.stage = Stage::Reporting { call, started_at: self.now };
        }
    }

    fn on_report(&mut self, report: pb::ReportTripsResponse, started_at: MonotonicTime) {
        let life = Duration::from_millis(report.good_for_ms.into());
        self.token_until = started_at + life;
        self.set_token(report.latency_token.clone());
        self.report_response = Some(report);
        let [least, most] = REFRESH_SHARE_RANGE;
        let refresh_at = started_at + life.mul_f64(least + (most - least) * self.rng.random::<f64>());
        self.is_first_measurement_over = true;
        self.stage = Stage::Resting { until: refresh_at.max(self.now + REST_MIN) };
    }

    fn on_failed(&mut self, error: &CallError) {
        let has_no_beacons = error.is_final() || error.reason == pb::ErrorReason::NoBeacons;
        let rest = if has_no_beacons { REST_WITHOUT_BEACONS } else { REST_AFTER_FAILURE };
        let asked = error.retry_after_ms.map_or(Duration::ZERO, Duration::from_millis);
        self.rest(rest.max(asked.min(SERVER_REST_MAX)));
    }

    /// Measures again after a time. A token that is still fresh stays.
    fn rest(&mut self, rest: Duration) {
        self.is_first_measurement_over = true;
        let jitter: f64 = self.rng.random();
        self.stage = Stage::Resting { until: self.now + rest.mul_f64(1.0 + REST_JITTER * jitter) };
    }

    fn set_token(&mut self, token: Vec<u8>) {
        self.has_token_changed |= self.token != token;
        self.token = token;
    }
}

impl fmt::Debug for Beacons {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beacons")
            .field("stage", &self.stage)
            .field("has_token", &!self.token.is_empty())
            .field("report_response", &self.report_response)
            .finish_non_exhaustive()
    }
}

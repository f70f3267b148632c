//! Prober of one beacon: one conversation after another, whose receipts it collects. A conversation is hello, challenge, proof and receipt.
//!
//! It has no socket and no clock. Times are microseconds of one monotonic clock of the caller.

use std::net::SocketAddr;

use crate::address::is_same_endpoint;
use crate::beacon::{Challenge, Hello, Receipt};
use crate::header::FIXED_PACKET_BYTES;
use crate::run::{ProbeRun, RoundTripStatistics, answer_timeout_from_estimate_ms};

/// Most conversations with one beacon in a measurement. Sixteen beacons then have no more receipts than one report may contain.
pub const CONVERSATIONS_MAX: u32 = 6;

/// Time between the starts of two conversations with one beacon, microseconds.
const CONVERSATION_INTERVAL_US: u64 = 50_000;
/// Pause in seconds that stands for an hour.
const ONE_HOUR_WAIT_SENTINEL: u16 = 65_535;

/// Beacon to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeaconTarget {
    /// Address and port at which the beacon answers.
    pub endpoint: SocketAddr,
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Binding of the user whom the receipts are for.
    pub binding: [u8; 16],
}

/// Answer of a beacon that the prober was waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconAnswer {
    /// A challenge. Send this proof at once: the beacon measures until it arrives.
    SendProof([u8; FIXED_PACKET_BYTES]),
    /// A receipt, which ends the conversation.
    Receipt,
    /// The beacon is to be left alone for this number of seconds, which ends the measurement.
    Busy(u32),
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconFinding {
    /// The beacon gave receipts.
    Answered,
    /// Three conversations got no receipt.
    Silent,
    /// The beacon asked to be left alone.
    Busy,
}

/// Prober of one beacon.
#[derive(Clone, Debug)]
pub struct BeaconProber {
    target: BeaconTarget,
    nonce: [u8; 8],
    round_trips: ProbeRun,
    started_conversations: u16,
    conversation: Option<Conversation>,
    may_start_at_us: u64,
    beacon_is_busy: bool,
    receipts: Vec<[u8; FIXED_PACKET_BYTES]>,
    longest_round_trip_ms: f64,
}

/// Conversation underway.
#[derive(Clone, Copy, Debug)]
struct Conversation {
    hello: Hello,
    /// Whether the challenge has come, so that the receipt is awaited.
    has_challenge: bool,
    /// Time at which the answer is too late.
    answer_due_us: u64,
}

impl BeaconProber {
    /// Prober of a beacon. The nonce is random.
    pub fn new(target: BeaconTarget, nonce: [u8; 8]) -> Self {
        Self {
            target,
            nonce,
            round_trips: ProbeRun::default(),
            started_conversations: 0,
            conversation: None,
            may_start_at_us: 0,
            beacon_is_busy: false,
            receipts: Vec::new(),
            longest_round_trip_ms: f64::INFINITY,
        }
    }

    /// Beacon of the prober.
    pub fn target(&self) -> &BeaconTarget {
        &self.target
    }

    /// Time from which the next conversation may start; `None` while one is underway, and after the measurement.
    pub fn next_start_us(&self) -> Option<u64> {
        (self.conversation.is_none() && self.finding().is_none()).then_some(self.may_start_at_us)
    }

    /// Starts the next conversation, if it may start now. Returns its hello.
    pub fn start_conversation(&mut self, now_us: u64) -> Option<[u8; FIXED_PACKET_BYTES]> {
        self.next_start_us().filter(|at_us| *at_us <= now_us)?;
        self.started_conversations += 1;
        let hello = Hello { sequence: self.started_conversations, nonce: self.nonce };
        self.conversation =
            Some(Conversation { hello, has_challenge: false, answer_due_us: self.answer_until_us(now_us) });
        self.may_start_at_us = now_us.saturating_add(CONVERSATION_INTERVAL_US);
        Some(hello.encode())
    }

    /// Takes a packet that arrived. `None` unless it is the answer that is awaited, in time and from the beacon.
    pub fn handle(&mut self, packet: &[u8], from: SocketAddr, now_us: u64) -> Option<BeaconAnswer> {
        self.expire(now_us);
        let conversation = self.conversation?;
        if !is_same_endpoint(from, self.target.endpoint) {
            return None;
        }
        if conversation.has_challenge { self.handle_receipt(packet) } else { self.handle_challenge(packet, now_us) }
    }

    /// Counts the conversation as lost if its answer is late.
    pub fn expire(&mut self, now_us: u64) {
        if self.conversation.is_some_and(|conversation| conversation.answer_due_us <= now_us) {
            self.conversation = None;
            self.round_trips.record_answer_or_loss(None);
        }
    }

    /// Time at which the conversation underway counts as lost.
    pub fn next_expiry_us(&self) -> Option<u64> {
        self.conversation.map(|conversation| conversation.answer_due_us)
    }

    /// Result of the measurement; `None` while it goes on.
    pub fn finding(&self) -> Option<BeaconFinding> {
        if self.beacon_is_busy {
            return Some(BeaconFinding::Busy);
        }
        if self.round_trips.is_silent() {
            return Some(BeaconFinding::Silent);
        }
        self.round_trips.has_sent_enough(CONVERSATIONS_MAX).then_some(BeaconFinding::Answered)
    }

    /// Receipts so far.
    pub fn receipts(&self) -> &[[u8; FIXED_PACKET_BYTES]] {
        &self.receipts
    }

    /// Statistics so far: a conversation counts as one packet, and its round trip is the one that the receipt names.
    pub fn statistics(&self) -> RoundTripStatistics {
        self.round_trips.statistics()
    }

    fn handle_challenge(&mut self, packet: &[u8], now_us: u64) -> Option<BeaconAnswer> {
        let until_us = self.answer_until_us(now_us);
        let conversation = self.conversation.as_mut()?;
        let challenge = Challenge::decode(packet).ok()?;
        if challenge.hello != conversation.hello || challenge.beacon_id != self.target.beacon_id {
            return None;
        }
        if let Some(wait_s) = challenge.wait_s {
            self.conversation = None;
            self.beacon_is_busy = true;
            return Some(BeaconAnswer::Busy(if wait_s == ONE_HOUR_WAIT_SENTINEL { 3_600 } else { wait_s.into() }));
        }
        conversation.has_challenge = true;
        conversation.answer_due_us = until_us;
        Some(BeaconAnswer::SendProof(challenge.proof(self.target.binding).encode()))
    }

    fn handle_receipt(&mut self, packet: &[u8]) -> Option<BeaconAnswer> {
        let conversation = self.conversation?;
        let claims = Receipt::decode(packet).ok()?.claims;
        let BeaconTarget { beacon_id, binding, .. } = self.target;
        let is_asked = claims.sequence == conversation.hello.sequence
            && (claims.beacon_id, claims.binding) == (beacon_id, binding);
        if !is_asked {
            return None;
        }
        let round_trip_ms = f64::from(claims.round_trip_us) / 1_000.0;
        self.longest_round_trip_ms =
            if self.receipts.is_empty() { round_trip_ms } else { self.longest_round_trip_ms.max(round_trip_ms) };
        self.receipts.extend(packet.first_chunk());
        self.conversation = None;
        self.round_trips.record_answer_or_loss(Some(round_trip_ms));
        Some(BeaconAnswer::Receipt)
    }

    /// Time at which the answer to a packet that is sent now is too late.
    fn answer_until_us(&self, now_us: u64) -> u64 {
        now_us.saturating_add((answer_timeout_from_estimate_ms(self.longest_round_trip_ms) * 1_000.0) as u64)
    }
}

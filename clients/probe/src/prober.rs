//! Prober of one host: makes the packets of its run, matches the answers, and says when the host has been probed enough.
//!
//! It has no socket and no clock. Times are microseconds of one monotonic clock of the caller.

use std::net::SocketAddr;

use crate::address::is_same_endpoint;
use crate::echo::{EchoReply, EchoRequest, ProbeKey, ReturnedQuestionFields};
use crate::involved::{GAME_DATA_BYTES_MAX, Involved, InvolvedReply, Verdict};
use crate::run::{
    PACKETS_PER_RUN_MAX, PACKETS_TO_SILENT_HOST_MAX, ProbeRun, RoundTripStatistics, answer_timeout_from_estimate_ms,
};

/// Time between two packets to one host, microseconds.
const PACKET_INTERVAL_US: u64 = 50_000;
/// Age up to which a cookie is used, microseconds. The host accepts it for at least 30 s.
const COOKIE_AGE_MAX_US: u64 = 25_000_000;
/// Answers that a run needs at least. Until then this number of packets may be underway.
const ANSWERS_FOR_EARLY_END_MIN: u32 = 4;

/// Host to probe.
#[derive(Clone, Debug)]
pub struct ProbeTarget {
    /// Address and port at which the host answers.
    pub endpoint: SocketAddr,
    /// Key of the advertisement's probes.
    pub key: ProbeKey,
    /// First eight bytes of the advertisement's id.
    pub advertisement_id_prefix: [u8; 8],
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFinding {
    /// The host answered.
    Answered,
    /// Three packets were sent, and none was answered.
    Silent,
    /// The host's game refuses the client's data.
    Incompatible,
    /// The host said that it has no open seat.
    Full,
}

/// Prober of one host. It starts with a quick run; [`Self::start_run_with_game_data`] starts the involved one.
#[derive(Clone, Debug)]
pub struct HostProber {
    target: ProbeTarget,
    nonce: [u8; 8],
    answer_timeout_us: u64,
    /// Data of the game; `None` in the quick run.
    game_data: Option<Vec<u8>>,
    run: ProbeRun,
    packets_sent_in_run: u32,
    packets_underway: Vec<UnansweredPacket>,
    next_sequence: u16,
    may_send_at_us: u64,
    cookie: Option<ReceivedCookie>,
    refusal: Option<ProbeFinding>,
    last_answer_at_us: Option<u64>,
}

/// Packet whose answer is awaited.
#[derive(Clone, Copy, Debug)]
struct UnansweredPacket {
    sequence: u16,
    sent_us: u64,
    is_involved: bool,
}

#[derive(Clone, Copy, Debug)]
struct ReceivedCookie {
    bytes: [u8; 16],
    received_us: u64,
}

impl HostProber {
    /// Prober of a quick run. The nonce is random. `high_estimate_to_advert_ms` is the estimated round trip at its high end, which sets the time
    /// in which an answer counts; infinite if it is not known.
    pub fn new(target: ProbeTarget, nonce: [u8; 8], high_estimate_to_advert_ms: f64) -> Self {
        Self {
            target,
            nonce,
            answer_timeout_us: (answer_timeout_from_estimate_ms(high_estimate_to_advert_ms) * 1_000.0) as u64,
            game_data: None,
            run: ProbeRun::default(),
            packets_sent_in_run: 0,
            packets_underway: Vec::new(),
            next_sequence: 0,
            may_send_at_us: 0,
            cookie: None,
            refusal: None,
            last_answer_at_us: None,
        }
    }

    /// Starts an involved run with data of the game, of which at most [`GAME_DATA_BYTES_MAX`] bytes are sent. A cookie of the quick run is
    /// used while it is fresh; otherwise the run gets one first.
    pub fn start_run_with_game_data(&mut self, mut game_data: Vec<u8>) {
        game_data.truncate(GAME_DATA_BYTES_MAX);
        self.game_data = Some(game_data);
        self.run = ProbeRun::default();
        self.packets_sent_in_run = 0;
        self.packets_underway.clear();
        self.refusal = None;
    }

    /// Time from which the next packet may be sent; `None` while an answer is awaited, and after the run is complete.
    pub fn next_send_us(&self) -> Option<u64> {
        (self.finding().is_none()
            && self.packets_sent_in_run < PACKETS_PER_RUN_MAX
            && self.packets_underway.len() < self.underway_max())
        .then_some(self.may_send_at_us)
    }

    /// Next packet, if one may be sent now.
    pub fn next_packet(&mut self, now_us: u64) -> Option<Vec<u8>> {
        self.next_send_us().filter(|at_us| *at_us <= now_us)?;
        let sequence = self.next_sequence;
        let ProbeTarget { key, advertisement_id_prefix: advertisement, .. } = &self.target;
        let question = ReturnedQuestionFields {
            sequence,
            nonce: self.nonce,
            advertisement_id_prefix: *advertisement,
            stamp: [0; 8],
        };
        let cookie = self.cookie.filter(|cookie| now_us.saturating_sub(cookie.received_us) <= COOKIE_AGE_MAX_US);
        let (packet, is_involved) = match (&self.game_data, cookie) {
            (Some(game_data), Some(cookie)) => {
                (Involved { question, quick_reply_cookie: cookie.bytes, game_data }.encode(key)?, true)
            }
            (Some(_), None) | (None, _) => (EchoRequest(question).encode(key).to_vec(), false),
        };
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.packets_sent_in_run += 1;
        self.packets_underway.push(UnansweredPacket { sequence, sent_us: now_us, is_involved });
        self.may_send_at_us = now_us.saturating_add(PACKET_INTERVAL_US);
        Some(packet)
    }

    /// Takes a packet that arrived. Returns whether it is the first answer to a packet of this run, in time and from the host.
    pub fn handle(&mut self, packet: &[u8], from: SocketAddr, now_us: u64) -> bool {
        self.expire(now_us);
        if !is_same_endpoint(from, self.target.endpoint)
            || packet.get(8..16) != Some(&self.nonce)
            || self.finding().is_some()
        {
            return false;
        }
        if let Ok(reply) = EchoReply::decode(packet, &self.target.key) {
            let Some(sent_us) = self.take_underway(&reply.question, false) else { return false };
            self.cookie = Some(ReceivedCookie { bytes: reply.cookie, received_us: now_us });
            self.pause(reply.wait_10ms, now_us);
            if reply.flags.full {
                self.refusal = Some(ProbeFinding::Full);
            }
            if self.game_data.is_some() {
                // Only packets with data are measured; those that asked for a cookie are done.
                self.run = ProbeRun::default();
                self.packets_underway.retain(|packet| packet.is_involved);
                self.last_answer_at_us = Some(now_us);
            } else {
                self.record_answer(sent_us, now_us);
            }
            return true;
        }
        let Ok(reply) = InvolvedReply::decode(packet, &self.target.key) else { return false };
        let Some(sent_us) = self.take_underway(&reply.question, true) else { return false };
        self.pause(reply.wait_10ms, now_us);
        self.record_answer(sent_us, now_us);
        self.refusal = match reply.verdict {
            Verdict::Fits => None,
            Verdict::Incompatible => Some(ProbeFinding::Incompatible),
            Verdict::Full => Some(ProbeFinding::Full),
        };
        true
    }

    /// Counts packets as lost whose answers are late.
    pub fn expire(&mut self, now_us: u64) {
        let timeout_us = self.answer_timeout_us;
        let before = self.packets_underway.len();
        self.packets_underway.retain(|packet| now_us < packet.sent_us.saturating_add(timeout_us));
        (self.packets_underway.len()..before).for_each(|_| self.run.record_answer_or_loss(None));
    }

    /// Time at which the next packet counts as lost.
    pub fn next_expiry_us(&self) -> Option<u64> {
        let first = self.packets_underway.iter().map(|packet| packet.sent_us).min()?;
        self.finding().is_none().then(|| first.saturating_add(self.answer_timeout_us))
    }

    /// Result of the run; `None` while it goes on.
    pub fn finding(&self) -> Option<ProbeFinding> {
        if self.refusal.is_some() {
            return self.refusal;
        }
        if self.run.is_silent() {
            return Some(ProbeFinding::Silent);
        }
        let is_used_up = PACKETS_PER_RUN_MAX <= self.packets_sent_in_run && self.packets_underway.is_empty();
        (is_used_up || self.run.has_sent_enough(PACKETS_PER_RUN_MAX)).then(|| self.answered_or_silent())
    }

    /// Ends the run early, without the packets that are underway. `None` if it is not known whether the host answers.
    pub fn end(&mut self) -> Option<ProbeFinding> {
        if let Some(finding) = self.finding() {
            return Some(finding);
        }
        self.packets_underway.clear();
        (0 < self.run.statistics().answered).then_some(ProbeFinding::Answered)
    }

    /// Address and port of the host.
    pub fn endpoint(&self) -> SocketAddr {
        self.target.endpoint
    }

    /// Statistics of the run so far.
    pub fn statistics(&self) -> RoundTripStatistics {
        self.run.statistics()
    }

    /// Time of the last answer.
    pub fn last_answer_us(&self) -> Option<u64> {
        self.last_answer_at_us
    }

    fn answered_or_silent(&self) -> ProbeFinding {
        if self.run.statistics().answered == 0 { ProbeFinding::Silent } else { ProbeFinding::Answered }
    }

    /// Number of packets that may be underway: few, so that a run sends no more than it needs and a silent host gets three.
    fn underway_max(&self) -> usize {
        let found = self.run.statistics();
        let most = if found.answered == 0 {
            PACKETS_TO_SILENT_HOST_MAX.saturating_sub(found.sent)
        } else {
            ANSWERS_FOR_EARLY_END_MIN.saturating_sub(found.answered).clamp(1, PACKETS_TO_SILENT_HOST_MAX)
        };
        most as usize
    }

    /// Removes the packet that this question is from, and returns its time.
    fn take_underway(&mut self, question: &ReturnedQuestionFields, is_involved: bool) -> Option<u64> {
        if question.nonce != self.nonce || question.advertisement_id_prefix != self.target.advertisement_id_prefix {
            return None;
        }
        let is_asked =
            |packet: &UnansweredPacket| packet.sequence == question.sequence && packet.is_involved == is_involved;
        let at = self.packets_underway.iter().position(is_asked)?;
        Some(self.packets_underway.swap_remove(at).sent_us)
    }

    fn record_answer(&mut self, sent_us: u64, now_us: u64) {
        self.run.record_answer_or_loss(Some(now_us.saturating_sub(sent_us) as f64 / 1_000.0));
        self.last_answer_at_us = Some(now_us);
    }

    /// Leaves the host alone for as long as it asks.
    fn pause(&mut self, wait_10ms: u16, now_us: u64) {
        self.may_send_at_us = self.may_send_at_us.max(now_us.saturating_add(u64::from(wait_10ms) * 10_000));
    }
}

//! Answers of a host to probes, for the socket of a game or one of its own.

use std::net::SocketAddr;

use crate::echo::{EchoReply, EchoRequest, HostCookieKey, HostStateFlags, ProbeKey};
use crate::header::is_probe;
use crate::involved::{Involved, InvolvedReply, Verdict};
use crate::rate_limit::{PrefixRateLimit, TotalRateLimit};

/// Packets from one network that are read, per second.
const PER_PREFIX_PER_S: u32 = 20;
/// Entries of the limit per network.
const PREFIX_ENTRIES: usize = 4_096;
/// Packets that are answered, per second.
const ANSWERS_PER_S: u32 = 200;
/// Packets that the game judges, per second.
const JUDGED_PER_S: u32 = 20;
/// Time for which clients leave a busy host alone, in units of 10 ms.
const BUSY_WAIT_10MS: u16 = 25;

/// Host that answers the probes of one advertisement. Without an advertisement, and to who does not know its key, it is silent.
///
/// It sends one packet for one that arrived, never a longer one. Its memory is fixed.
#[derive(Debug)]
pub struct HostResponder {
    cookie_key: HostCookieKey,
    advertisement: Option<([u8; 8], ProbeKey)>,
    full: bool,
    per_prefix: PrefixRateLimit,
    answers: TotalRateLimit,
    judged: TotalRateLimit,
}

/// Time at which a packet arrived.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalAndAnswerTime {
    /// Time of arrival by a clock that never goes back, microseconds.
    pub arrived_us: u64,
    /// Time now by the same clock.
    pub now_us: u64,
}

impl HostResponder {
    /// Silent host. The key is 32 random bytes.
    pub fn new(cookie_key: HostCookieKey) -> Self {
        Self {
            cookie_key,
            advertisement: None,
            full: false,
            per_prefix: PrefixRateLimit::new(PREFIX_ENTRIES, PER_PREFIX_PER_S, PER_PREFIX_PER_S),
            answers: TotalRateLimit::new(ANSWERS_PER_S, ANSWERS_PER_S),
            judged: TotalRateLimit::new(JUDGED_PER_S, JUDGED_PER_S),
        }
    }

    /// Answers the probes of this advertisement from now on: the id's 16 bytes, and the key that was published with it.
    pub fn set_advertisement(&mut self, advertisement_id: [u8; 16], key: ProbeKey) {
        let [first, ..] = advertisement_id.as_chunks::<8>().0 else { return };
        self.advertisement = Some((*first, key));
    }

    /// Becomes silent.
    pub fn clear_advertisement(&mut self) {
        self.advertisement = None;
    }

    /// Says in answers whether the session has no open seat.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Answer to a packet; `None` for what is not answered. `judge` is the game: it sees the client's data, and writes its own into
    /// the buffer, of which at most the length of the client's data and 18 bytes are sent.
    pub fn handle(
        &mut self,
        packet: &[u8],
        from: SocketAddr,
        time: ArrivalAndAnswerTime,
        judge: impl FnOnce(&[u8], &mut Vec<u8>) -> Verdict,
    ) -> Option<Vec<u8>> {
        if !is_probe(packet) || !self.per_prefix.take(from.ip(), time.now_us) {
            return None;
        }
        let (own, key) = self.advertisement.as_ref()?;
        let slot = (time.now_us / (HostCookieKey::SLOT_S * 1_000_000)) as u32;
        let held_10us = u16::try_from(time.now_us.saturating_sub(time.arrived_us) / 10).unwrap_or(u16::MAX);
        if let Ok(EchoRequest(question)) = EchoRequest::decode(packet, key) {
            if question.advertisement != *own || !self.answers.take(time.now_us) {
                return None;
            }
            let wait_10ms = busy_wait_10ms(&self.answers, time);
            let flags = HostStateFlags { full: self.full, wait: 0 < wait_10ms };
            let cookie = self.cookie_key.cookie(from, &question, slot);
            return Some(EchoReply { question, flags, wait_10ms, held_10us, cookie }.encode(key).to_vec());
        }
        let Involved { question, cookie, game_data } = Involved::decode(packet, key).ok()?;
        if question.advertisement != *own || !self.cookie_key.is_good(&cookie, from, &question, slot) {
            return None;
        }
        if !self.answers.take(time.now_us) || !self.judged.take(time.now_us) {
            return None;
        }
        let wait_10ms = busy_wait_10ms(&self.answers, time);
        let mut answer = Vec::new();
        let verdict = judge(game_data, &mut answer);
        answer.truncate(game_data.len() + InvolvedReply::EXTRA_DATA_BYTES);
        InvolvedReply { question, wait_10ms, held_10us, verdict, game_data: &answer }.encode(key, packet.len())
    }
}

/// Time for which the client leaves this host alone: 0 unless it is busy.
fn busy_wait_10ms(answers: &TotalRateLimit, time: ArrivalAndAnswerTime) -> u16 {
    if answers.is_nearly_used(time.now_us) { BUSY_WAIT_10MS } else { 0 }
}

//! Answers of a host to probes, for the socket of a game or one of its own.

use std::net::SocketAddr;

use crate::echo::{EchoReply, EchoRequest, HostCookieKey, HostStateFlags, ProbeKey};
use crate::header::is_probe;
use crate::involved::{Involved, InvolvedReply, Verdict};
use crate::rate_limit::{PrefixRateLimit, TotalRateLimit};

/// Packets from one network that are read, per second.
const PACKETS_PER_PREFIX_PER_S: u32 = 20;
/// Entries of the limit per network.
const RATE_LIMIT_ENTRIES: usize = 4_096;
/// Packets that are answered, per second.
const ANSWERS_PER_S: u32 = 200;
/// Packets that the game judges, per second.
const JUDGED_PER_S: u32 = 20;
/// Time for which clients leave a busy host alone, in units of 10 ms.
const CLIENT_PAUSE_WHEN_BUSY_10MS: u16 = 25;

/// Host that answers the probes of one advertisement. Without an advertisement, and to who does not know its key, it is silent.
///
/// It sends one packet for one that arrived, never a longer one. Its memory is fixed.
#[derive(Debug)]
pub struct HostResponder {
    cookie_key: HostCookieKey,
    id_prefix_and_probe_key: Option<([u8; 8], ProbeKey)>,
    is_session_full: bool,
    prefix_rate_limit: PrefixRateLimit,
    answer_rate_limit: TotalRateLimit,
    judgement_rate_limit: TotalRateLimit,
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
            id_prefix_and_probe_key: None,
            is_session_full: false,
            prefix_rate_limit: PrefixRateLimit::new(
                RATE_LIMIT_ENTRIES,
                PACKETS_PER_PREFIX_PER_S,
                PACKETS_PER_PREFIX_PER_S,
            ),
            answer_rate_limit: TotalRateLimit::new(ANSWERS_PER_S, ANSWERS_PER_S),
            judgement_rate_limit: TotalRateLimit::new(JUDGED_PER_S, JUDGED_PER_S),
        }
    }

    /// Answers the probes of this advertisement from now on: the id's 16 bytes, and the key that was published with it.
    pub fn set_advertisement(&mut self, advertisement_id: [u8; 16], key: ProbeKey) {
        let [first, ..] = advertisement_id.as_chunks::<8>().0 else { return };
        self.id_prefix_and_probe_key = Some((*first, key));
    }

    /// Becomes silent.
    pub fn clear_advertisement(&mut self) {
        self.id_prefix_and_probe_key = None;
    }

    /// Says in answers whether the session has no open seat.
    pub fn set_full(&mut self, full: bool) {
        self.is_session_full = full;
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
        if !is_probe(packet) || !self.prefix_rate_limit.take(from.ip(), time.now_us) {
            return None;
        }
        let (own, key) = self.id_prefix_and_probe_key.as_ref()?;
        let slot = (time.now_us / (HostCookieKey::SLOT_S * 1_000_000)) as u32;
        let held_10us = u16::try_from(time.now_us.saturating_sub(time.arrived_us) / 10).unwrap_or(u16::MAX);
        if let Ok(EchoRequest(question)) = EchoRequest::decode(packet, key) {
            if question.advertisement_id_prefix != *own || !self.answer_rate_limit.take(time.now_us) {
                return None;
            }
            let wait_10ms = client_pause_when_busy_10ms(&self.answer_rate_limit, time);
            let flags = HostStateFlags { full: self.is_session_full, asks_to_wait: 0 < wait_10ms };
            let cookie = self.cookie_key.cookie(from, &question, slot);
            return Some(EchoReply { question, flags, wait_10ms, held_10us, cookie }.encode(key).to_vec());
        }
        let Involved { question, quick_reply_cookie: cookie, game_data } = Involved::decode(packet, key).ok()?;
        if question.advertisement_id_prefix != *own || !self.cookie_key.is_good(&cookie, from, &question, slot) {
            return None;
        }
        if !self.answer_rate_limit.take(time.now_us) || !self.judgement_rate_limit.take(time.now_us) {
            return None;
        }
        let wait_10ms = client_pause_when_busy_10ms(&self.answer_rate_limit, time);
        let mut answer = Vec::new();
        let verdict = judge(game_data, &mut answer);
        answer.truncate(game_data.len() + InvolvedReply::DATA_BYTES_BEYOND_QUESTION_MAX);
        InvolvedReply { question, wait_10ms, held_10us, verdict, game_data: &answer }.encode(key, packet.len())
    }
}

/// Time for which the client leaves this host alone: 0 unless it is busy.
fn client_pause_when_busy_10ms(answers: &TotalRateLimit, time: ArrivalAndAnswerTime) -> u16 {
    if answers.is_nearly_used(time.now_us) { CLIENT_PAUSE_WHEN_BUSY_10MS } else { 0 }
}

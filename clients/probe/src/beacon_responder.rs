//! Answers of a beacon. It keeps two keys, a rate for each network, and nothing of a client.

use std::net::SocketAddr;

use crate::address::AddressPrefix;
use crate::beacon::{BeaconCookieKey, BeaconKey, Challenge, ChallengeProof, Hello, ReceiptClaims};
use crate::header::FIXED_PACKET_BYTES;
use crate::rate_limit::{PrefixRateLimit, TotalRateLimit};

/// Packets from one network that are answered, per second, and in a burst.
const PACKETS_PER_PREFIX_PER_S: u32 = 20;
const PACKET_BURST_PER_PREFIX: u32 = 40;
/// Entries of the limit per network.
const RATE_LIMIT_ENTRIES: usize = 65_536;
/// Time for which clients leave a busy beacon alone, seconds.
const WAIT_WHEN_BUSY_S: u16 = 30;

/// Beacon: answers a hello with a challenge, and the proof that the challenge was received with a signed round trip.
#[derive(Debug)]
pub struct BeaconResponder {
    beacon_id: u32,
    key: BeaconKey,
    key_id: [u8; 4],
    cookie_keys: [BeaconCookieKey; 2],
    prefix_rate_limit: PrefixRateLimit,
    total_rate_limit: TotalRateLimit,
}

impl BeaconResponder {
    /// Beacon with its id and key, which answers at most this many packets a second. The cookie key is 32 random bytes.
    pub fn new(beacon_id: u32, key: BeaconKey, cookie_key: BeaconCookieKey, packets_per_s: u32) -> Self {
        Self {
            beacon_id,
            key_id: key.key_id(),
            key,
            cookie_keys: [cookie_key.clone(), cookie_key],
            prefix_rate_limit: PrefixRateLimit::new(
                RATE_LIMIT_ENTRIES,
                PACKETS_PER_PREFIX_PER_S,
                PACKET_BURST_PER_PREFIX,
            ),
            total_rate_limit: TotalRateLimit::new(packets_per_s, packets_per_s),
        }
    }

    /// Takes a new random cookie key, each minute. Cookies of the one before stay good until the next call.
    pub fn rotate_cookie_key(&mut self, cookie_key: BeaconCookieKey) {
        let [current, _] = &self.cookie_keys;
        self.cookie_keys = [cookie_key, current.clone()];
    }

    /// Answer to a packet that arrived now, by a clock that never goes back, microseconds, and in Unix seconds. `None` for what is
    /// not answered. Send it at once: its time of sending is `now_us`.
    pub fn handle(
        &mut self,
        packet: &[u8],
        from: SocketAddr,
        now_us: u64,
        unix_s: u32,
    ) -> Option<[u8; FIXED_PACKET_BYTES]> {
        // Before any code is computed, so that a flood costs little.
        if packet.len() != FIXED_PACKET_BYTES
            || !self.prefix_rate_limit.take(from.ip(), now_us)
            || !self.total_rate_limit.take(now_us)
        {
            return None;
        }
        if let Ok(hello) = Hello::decode(packet) {
            let (beacon_id, key_id, sent_us) = (self.beacon_id, self.key_id, now_us);
            let cookie = self.cookie_keys[0].cookie(from, &hello, beacon_id, sent_us);
            let wait_s = self.total_rate_limit.is_nearly_used(now_us).then_some(WAIT_WHEN_BUSY_S);
            return Some(Challenge { hello, beacon_id, key_id, sent_us, cookie, wait_s }.encode());
        }
        let proof = ChallengeProof::decode(packet).ok().filter(|proof| proof.beacon_id == self.beacon_id)?;
        if !self.cookie_keys.iter().any(|key| key.has_made_cookie_of(&proof, from)) {
            return None;
        }
        let claims = ReceiptClaims {
            sequence: proof.hello.sequence,
            beacon_id: self.beacon_id,
            key_id: self.key_id,
            issued_unix_s: unix_s,
            round_trip_us: proof.round_trip_us(now_us)?,
            prefix: AddressPrefix::of(from.ip()),
            binding: proof.binding,
        };
        Some(claims.sign(&self.key))
    }
}

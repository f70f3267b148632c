//! Receipts of beacons: a beacon measures the round trip to an address itself and signs it. The client only carries it.
//!
//! The cookie of a challenge is a code over the time at which it was sent, and goes to the address that the receipt names. So who sends
//! the proof has received there, and the figure is at least the time of light from the beacon to that address and back.

use std::fmt;
use std::net::SocketAddr;

use crate::address::{AddressPrefix, endpoint_bytes};
use crate::error::PacketError;
use crate::header::{
    FIXED_PACKET_BYTES, PacketType, as_fixed_packet, bytes_at, check_padding, read_flags_and_sequence, write_header,
};
use crate::mac::{is_mac, mac};

/// Longest round trip of a receipt, microseconds.
pub const RECEIPT_ROUND_TRIP_US_MAX: u32 = 2_000_000;

/// First question of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of the packet within its run.
    pub sequence: u16,
    /// Random number of the run.
    pub nonce: [u8; 8],
}

impl Hello {
    /// The packet.
    pub fn encode(&self) -> [u8; FIXED_PACKET_BYTES] {
        let mut packet = [0; FIXED_PACKET_BYTES];
        write_header(&mut packet, PacketType::Hello, 0, self.sequence);
        packet[8..16].copy_from_slice(&self.nonce);
        packet
    }

    /// Reads a packet.
    pub fn decode(packet: &[u8]) -> Result<Self, PacketError> {
        let packet = as_fixed_packet(packet)?;
        let (flags, sequence) = read_flags_and_sequence(packet, PacketType::Hello)?;
        if flags != 0 {
            return Err(PacketError::Flags);
        }
        check_padding(&packet[16..])?;
        Ok(Self { sequence, nonce: bytes_at(packet, 8) })
    }
}

/// Answer to a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The question.
    pub hello: Hello,
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Id of the key with which the beacon signs.
    pub key_id: [u8; 4],
    /// Time of sending by the beacon's own clock, microseconds.
    pub sent_us: u64,
    /// Code over the time and the receiver.
    pub cookie: [u8; 16],
    /// Time for which the client leaves this beacon alone, seconds. 65535 is an hour. `None` if it need not.
    pub wait_s: Option<u16>,
}

impl Challenge {
    /// The packet.
    pub fn encode(&self) -> [u8; FIXED_PACKET_BYTES] {
        let mut packet = self.hello.encode();
        write_header(&mut packet, PacketType::Challenge, self.wait_s.is_some().into(), self.hello.sequence);
        packet[16..20].copy_from_slice(&self.beacon_id.to_be_bytes());
        packet[20..24].copy_from_slice(&self.key_id);
        packet[24..32].copy_from_slice(&self.sent_us.to_be_bytes());
        packet[32..48].copy_from_slice(&self.cookie);
        packet[48..50].copy_from_slice(&self.wait_s.unwrap_or(0).to_be_bytes());
        packet
    }

    /// Reads a packet. A client cannot verify it, and need not.
    pub fn decode(packet: &[u8]) -> Result<Self, PacketError> {
        let packet = as_fixed_packet(packet)?;
        let (flags, sequence) = read_flags_and_sequence(packet, PacketType::Challenge)?;
        let wait_s = u16::from_be_bytes(bytes_at(packet, 48));
        let wait_s = match flags {
            0 if wait_s == 0 => None,
            0 => return Err(PacketError::Field),
            1 => Some(wait_s),
            _ => return Err(PacketError::Flags),
        };
        check_padding(&packet[50..])?;
        Ok(Self {
            hello: Hello { sequence, nonce: bytes_at(packet, 8) },
            beacon_id: u32::from_be_bytes(bytes_at(packet, 16)),
            key_id: bytes_at(packet, 20),
            sent_us: u64::from_be_bytes(bytes_at(packet, 24)),
            cookie: bytes_at(packet, 32),
            wait_s,
        })
    }

    /// The client's second question. `binding` is from the server, and says for whom the receipt is.
    pub fn proof(&self, binding: [u8; 16]) -> ChallengeProof {
        let Self { hello, beacon_id, sent_us, cookie, .. } = *self;
        ChallengeProof { hello, beacon_id, challenge_sent_us: sent_us, cookie, binding }
    }
}

/// Second question of a client: it has received the challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChallengeProof {
    /// Sequence number and nonce of the first question.
    pub hello: Hello,
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Time of the challenge, as the beacon wrote it.
    pub challenge_sent_us: u64,
    /// Cookie of the challenge.
    pub cookie: [u8; 16],
    /// Binding of the user whom the receipt is for.
    pub binding: [u8; 16],
}

impl ChallengeProof {
    /// The packet.
    pub fn encode(&self) -> [u8; FIXED_PACKET_BYTES] {
        let mut packet = self.hello.encode();
        write_header(&mut packet, PacketType::Proof, 0, self.hello.sequence);
        packet[16..20].copy_from_slice(&self.beacon_id.to_be_bytes());
        packet[24..32].copy_from_slice(&self.challenge_sent_us.to_be_bytes());
        packet[32..48].copy_from_slice(&self.cookie);
        packet[48..].copy_from_slice(&self.binding);
        packet
    }

    /// Reads a packet. The beacon checks the cookie.
    pub fn decode(packet: &[u8]) -> Result<Self, PacketError> {
        let packet = as_fixed_packet(packet)?;
        let (flags, sequence) = read_flags_and_sequence(packet, PacketType::Proof)?;
        if flags != 0 {
            return Err(PacketError::Flags);
        }
        check_padding(&packet[20..24])?;
        Ok(Self {
            hello: Hello { sequence, nonce: bytes_at(packet, 8) },
            beacon_id: u32::from_be_bytes(bytes_at(packet, 16)),
            challenge_sent_us: u64::from_be_bytes(bytes_at(packet, 24)),
            cookie: bytes_at(packet, 32),
            binding: bytes_at(packet, 48),
        })
    }

    /// Round trip of a proof that arrived at this time by the beacon's clock, microseconds. `None` unless it is 1 µs to 2 s.
    pub fn round_trip_us(&self, arrived_us: u64) -> Option<u32> {
        let elapsed_us = u32::try_from(arrived_us.checked_sub(self.challenge_sent_us)?).ok()?;
        (1..=RECEIPT_ROUND_TRIP_US_MAX).contains(&elapsed_us).then_some(elapsed_us)
    }
}

/// Content of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptClaims {
    /// Number of the packet within its run.
    pub sequence: u16,
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Id of the key that signed it.
    pub key_id: [u8; 4],
    /// Time of the measurement, Unix seconds.
    pub issued_unix_s: u32,
    /// Measured round trip, microseconds.
    pub round_trip_us: u32,
    /// Network of the address that was measured.
    pub prefix: AddressPrefix,
    /// Binding of the user whom it is for.
    pub binding: [u8; 16],
}

impl ReceiptClaims {
    /// The signed packet.
    pub fn sign(&self, key: &BeaconKey) -> [u8; FIXED_PACKET_BYTES] {
        let mut packet = [0; FIXED_PACKET_BYTES];
        write_header(&mut packet, PacketType::Receipt, self.prefix.family(), self.sequence);
        packet[8..12].copy_from_slice(&self.beacon_id.to_be_bytes());
        packet[12..16].copy_from_slice(&self.key_id);
        packet[16..20].copy_from_slice(&self.issued_unix_s.to_be_bytes());
        packet[20..24].copy_from_slice(&self.round_trip_us.to_be_bytes());
        packet[24..32].copy_from_slice(&self.prefix.padded_bytes());
        packet[32..48].copy_from_slice(&self.binding);
        let code: [u8; 16] = mac(&key.0, &[&packet[..48]]);
        packet[48..].copy_from_slice(&code);
        packet
    }
}

/// Receipt as it was read, not yet verified.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    /// Its content.
    pub claims: ReceiptClaims,
    packet: [u8; FIXED_PACKET_BYTES],
}

impl Receipt {
    /// Reads a packet. Whether its key signed it is for [`Self::is_signed_by`].
    pub fn decode(packet: &[u8]) -> Result<Self, PacketError> {
        let packet = as_fixed_packet(packet)?;
        let (family, sequence) = read_flags_and_sequence(packet, PacketType::Receipt)?;
        let prefix = AddressPrefix::from_padded_bytes(family, bytes_at(packet, 24)).ok_or(PacketError::Field)?;
        let [beacon_id, issued_unix_s, round_trip_us] = [8, 16, 20].map(|at| u32::from_be_bytes(bytes_at(packet, at)));
        let (key_id, binding) = (bytes_at(packet, 12), bytes_at(packet, 32));
        let claims = ReceiptClaims { sequence, beacon_id, key_id, issued_unix_s, round_trip_us, prefix, binding };
        Ok(Self { claims, packet: *packet })
    }

    /// Whether a beacon's key signed it.
    pub fn is_signed_by(&self, key: &BeaconKey) -> bool {
        is_mac::<16>(&key.0, &[&self.packet[..48]], &bytes_at(&self.packet, 48))
    }
}

/// Key that all servers of a fleet share. It makes the keys of beacons and the bindings of players.
#[derive(Clone)]
pub struct FleetKey(pub [u8; 32]);

impl FleetKey {
    /// Key of a beacon, which has this one alone: a beacon that is broken into forges no other's receipts.
    pub fn beacon_key(&self, beacon_id: u32) -> BeaconKey {
        BeaconKey(mac(&self.0, &[b"fireteam beacon receipt v1", &beacon_id.to_be_bytes()]))
    }

    /// Binding of a user's receipts on a day, counted from 1970; `None` is a caller without identity. Beacons see it, and no account.
    pub fn receipt_binding(&self, user: Option<&[u8; 16]>, day: u32) -> [u8; 16] {
        let none = [0; 16];
        let parts: [&[u8]; 4] =
            [b"fireteam beacon binding v1", &[user.is_some().into()], user.unwrap_or(&none), &day.to_be_bytes()];
        mac(&self.0, &parts)
    }
}

impl fmt::Debug for FleetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FleetKey(…)")
    }
}

/// Key with which one beacon signs its receipts.
#[derive(Clone)]
pub struct BeaconKey(pub [u8; 32]);

impl BeaconKey {
    /// Id of the key, which receipts name.
    pub fn key_id(&self) -> [u8; 4] {
        mac(&self.0, &[b"fireteam key id"])
    }
}

impl fmt::Debug for BeaconKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BeaconKey(…)")
    }
}

/// Key of a beacon's cookies. The beacon draws a new one each minute, and accepts the one before for another.
#[derive(Clone)]
pub struct BeaconCookieKey(pub [u8; 32]);

impl BeaconCookieKey {
    /// Cookie of a challenge that is sent to an endpoint at this time.
    pub fn cookie(&self, to: SocketAddr, hello: &Hello, beacon_id: u32, sent_us: u64) -> [u8; 16] {
        mac(&self.0, &[&cookie_input(to, hello, beacon_id, sent_us)])
    }

    /// Whether this key made the cookie of a proof from an endpoint.
    pub fn has_made_cookie_of(&self, proof: &ChallengeProof, from: SocketAddr) -> bool {
        is_mac(&self.0, &[&cookie_input(from, &proof.hello, proof.beacon_id, proof.challenge_sent_us)], &proof.cookie)
    }
}

impl fmt::Debug for BeaconCookieKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BeaconCookieKey(…)")
    }
}

/// Bytes under a cookie: type, address, port, nonce, sequence number, time and beacon.
fn cookie_input(endpoint: SocketAddr, hello: &Hello, beacon_id: u32, sent_us: u64) -> [u8; 41] {
    let mut bytes = [0; 41];
    bytes[0] = PacketType::Challenge as u8;
    bytes[1..19].copy_from_slice(&endpoint_bytes(endpoint));
    bytes[19..27].copy_from_slice(&hello.nonce);
    bytes[27..29].copy_from_slice(&hello.sequence.to_be_bytes());
    bytes[29..37].copy_from_slice(&sent_us.to_be_bytes());
    bytes[37..].copy_from_slice(&beacon_id.to_be_bytes());
    #[cfg(feature = "failpoints")]
    crate::fail_points::zero_beacon_cookie_inputs_at_fail_points(&mut bytes);
    bytes
}

//! Quick probe: a packet to a host and its answer. Hosts answer only who knows the key of the advertisement.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::address::endpoint_bytes;
use crate::error::PacketError;
use crate::header::{
    FIXED_PACKET_BYTES, PacketType, as_fixed_packet, bytes_at, check_padding, read_flags_and_sequence, write_header,
};
use crate::mac::{is_mac, mac};

/// Permitted lengths of a [`ProbeKey`], bytes.
pub const PROBE_KEY_LENGTHS: RangeInclusive<usize> = 16..=32;

/// Key of an advertisement's probes. The host draws it for each advertisement, and who is shown the session receives it.
#[derive(Clone)]
pub struct ProbeKey(Box<[u8]>);

impl ProbeKey {
    /// Key of 16 to 32 bytes. `None` for other lengths.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        PROBE_KEY_LENGTHS.contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ProbeKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProbeKey(…)")
    }
}

/// Part of a question to a host that its answer repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedQuestionFields {
    /// Number of the packet within its run.
    pub sequence: u16,
    /// Random number of the run.
    pub nonce: [u8; 8],
    /// First eight bytes of the advertisement's id.
    pub advertisement_id_prefix: [u8; 8],
    /// Bytes of the client, for itself.
    pub stamp: [u8; 8],
}

impl ReturnedQuestionFields {
    pub(crate) fn write(&self, packet: &mut [u8], packet_type: PacketType, flags: u8) {
        write_header(packet, packet_type, flags, self.sequence);
        packet[8..16].copy_from_slice(&self.nonce);
        packet[16..24].copy_from_slice(&self.advertisement_id_prefix);
        packet[24..32].copy_from_slice(&self.stamp);
    }

    /// Flags and question of a packet of at least 32 bytes.
    pub(crate) fn read(packet: &[u8], packet_type: PacketType) -> Result<(u8, Self), PacketError> {
        let (flags, sequence) = read_flags_and_sequence(packet, packet_type)?;
        let (nonce, advertisement) = (bytes_at(packet, 8), bytes_at(packet, 16));
        Ok((flags, Self { sequence, nonce, advertisement_id_prefix: advertisement, stamp: bytes_at(packet, 24) }))
    }
}

/// Question of a quick probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoRequest(pub ReturnedQuestionFields);

impl EchoRequest {
    /// The packet.
    pub fn encode(&self, key: &ProbeKey) -> [u8; FIXED_PACKET_BYTES] {
        let mut packet = [0; FIXED_PACKET_BYTES];
        self.0.write(&mut packet, PacketType::EchoRequest, 0);
        let code: [u8; 16] = mac(key.bytes(), &[&packet[..32]]);
        packet[32..48].copy_from_slice(&code);
        packet
    }

    /// Reads a packet that was written with the key.
    pub fn decode(packet: &[u8], key: &ProbeKey) -> Result<Self, PacketError> {
        let packet = as_fixed_packet(packet)?;
        let (flags, question) = ReturnedQuestionFields::read(packet, PacketType::EchoRequest)?;
        if flags != 0 {
            return Err(PacketError::Flags);
        }
        check_padding(&packet[48..])?;
        is_mac::<16>(key.bytes(), &[&packet[..32]], &bytes_at(packet, 32))
            .then_some(Self(question))
            .ok_or(PacketError::Mac)
    }
}

/// State of a host, told with each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStateFlags {
    /// The session has no open seat.
    pub full: bool,
    /// The client leaves this host alone for the time of the answer.
    pub asks_to_wait: bool,
}

impl HostStateFlags {
    fn bits(self) -> u8 {
        u8::from(self.full) | u8::from(self.asks_to_wait) << 1
    }

    fn from_bits(bits: u8) -> Result<Self, PacketError> {
        (bits < 4).then_some(Self { full: bits & 1 != 0, asks_to_wait: bits & 2 != 0 }).ok_or(PacketError::Flags)
    }
}

/// Answer to an [`EchoRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoReply {
    /// The question, as it arrived.
    pub question: ReturnedQuestionFields,
    /// State of the host.
    pub flags: HostStateFlags,
    /// Time for which the client leaves this host alone, in units of 10 ms.
    pub wait_10ms: u16,
    /// Time from the arrival of the question to this answer, in units of 10 µs. For diagnosis: a client does not subtract it.
    pub held_10us: u16,
    /// Permits an involved probe from the address and port that received it.
    pub cookie: [u8; 16],
}

impl EchoReply {
    /// The packet.
    pub fn encode(&self, key: &ProbeKey) -> [u8; FIXED_PACKET_BYTES] {
        let mut packet = [0; FIXED_PACKET_BYTES];
        self.question.write(&mut packet, PacketType::EchoReply, self.flags.bits());
        packet[32..34].copy_from_slice(&self.wait_10ms.to_be_bytes());
        packet[34..36].copy_from_slice(&self.held_10us.to_be_bytes());
        packet[40..56].copy_from_slice(&self.cookie);
        let code: [u8; 8] = mac(key.bytes(), &[&packet[..56]]);
        packet[56..].copy_from_slice(&code);
        packet
    }

    /// Reads a packet that was written with the key.
    pub fn decode(packet: &[u8], key: &ProbeKey) -> Result<Self, PacketError> {
        let packet = as_fixed_packet(packet)?;
        let (flags, question) = ReturnedQuestionFields::read(packet, PacketType::EchoReply)?;
        let flags = HostStateFlags::from_bits(flags)?;
        check_padding(&packet[36..40])?;
        if !is_mac::<8>(key.bytes(), &[&packet[..56]], &bytes_at(packet, 56)) {
            return Err(PacketError::Mac);
        }
        let [wait_10ms, held_10us] = [32, 34].map(|at| u16::from_be_bytes(bytes_at(packet, at)));
        Ok(Self { question, flags, wait_10ms, held_10us, cookie: bytes_at(packet, 40) })
    }
}

/// Key of a host's cookies. The host draws it at its start, and no one else knows it.
#[derive(Clone)]
pub struct HostCookieKey(pub [u8; 32]);

impl fmt::Debug for HostCookieKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HostCookieKey(…)")
    }
}

impl HostCookieKey {
    /// Duration of a slot, seconds. A cookie is good in its slot and the next.
    pub const SLOT_S: u64 = 30;

    /// Cookie of a question from an endpoint, in a slot: the host's seconds divided by [`Self::SLOT_S`].
    pub fn cookie(&self, from: SocketAddr, question: &ReturnedQuestionFields, slot: u32) -> [u8; 16] {
        mac(&self.0, &[&cookie_input(from, question, slot)])
    }

    /// Whether a cookie was given to this endpoint for this question's nonce and advertisement, in this slot or the one before.
    pub fn is_good(&self, cookie: &[u8; 16], from: SocketAddr, question: &ReturnedQuestionFields, slot: u32) -> bool {
        [slot, slot.wrapping_sub(1)].iter().any(|slot| is_mac(&self.0, &[&cookie_input(from, question, *slot)], cookie))
    }
}

/// Bytes under a cookie: type, address, port, nonce, advertisement and slot.
fn cookie_input(endpoint: SocketAddr, question: &ReturnedQuestionFields, slot: u32) -> [u8; 39] {
    let mut bytes = [0; 39];
    bytes[0] = PacketType::EchoReply as u8;
    bytes[1..19].copy_from_slice(&endpoint_bytes(endpoint));
    bytes[19..27].copy_from_slice(&question.nonce);
    bytes[27..35].copy_from_slice(&question.advertisement_id_prefix);
    bytes[35..].copy_from_slice(&slot.to_be_bytes());
    bytes
}

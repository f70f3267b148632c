//! First eight bytes of each packet, and access to fields at fixed places.

use crate::error::PacketError;

/// Length of packets without data of a game, bytes.
pub const FIXED_PACKET_BYTES: usize = 64;

/// First bytes of each packet: the protocol and its version.
const MAGIC: [u8; 4] = *b"FTL\x01";

/// Length of the header, bytes.
pub(crate) const HEADER_BYTES: usize = 8;

/// Types of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PacketType {
    EchoRequest = 0x01,
    EchoReply = 0x02,
    Involved = 0x03,
    InvolvedReply = 0x04,
    Hello = 0x11,
    Challenge = 0x12,
    Proof = 0x13,
    Receipt = 0x14,
}

/// Whether bytes that arrive at a socket, which a game may share, start as packets of this protocol.
pub fn is_probe(packet: &[u8]) -> bool {
    packet.starts_with(&MAGIC) && HEADER_BYTES < packet.len()
}

/// Writes the header.
pub(crate) fn write_header(packet: &mut [u8], packet_type: PacketType, flags: u8, sequence: u16) {
    packet[..4].copy_from_slice(&MAGIC);
    packet[4..6].copy_from_slice(&[packet_type as u8, flags]);
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
}

/// Flags and sequence number of a packet of this type.
pub(crate) fn read_flags_and_sequence(packet: &[u8], packet_type: PacketType) -> Result<(u8, u16), PacketError> {
    if !is_probe(packet) || packet[4] != packet_type as u8 {
        return Err(PacketError::OtherType);
    }
    Ok((packet[5], u16::from_be_bytes(bytes_at(packet, 6))))
}

/// A packet of 64 bytes.
pub(crate) fn as_fixed_packet(packet: &[u8]) -> Result<&[u8; FIXED_PACKET_BYTES], PacketError> {
    packet.try_into().map_err(|_| PacketError::Length)
}

/// `N` bytes at a place, which the length of the packet includes.
pub(crate) fn bytes_at<const N: usize>(packet: &[u8], at: usize) -> [u8; N] {
    *packet[at..].first_chunk().expect("the packet is long enough")
}

/// Requires zeros.
pub(crate) fn check_padding(padding: &[u8]) -> Result<(), PacketError> {
    padding.iter().all(|byte| *byte == 0).then_some(()).ok_or(PacketError::Field)
}

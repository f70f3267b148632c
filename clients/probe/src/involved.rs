//! Involved probe: a packet with data of the game, which the host's game judges. It needs the cookie of a quick probe's answer.

use crate::echo::{ProbeKey, ReturnedQuestionFields};
use crate::error::PacketError;
use crate::header::{PacketType, bytes_at, check_padding};
use crate::mac::{is_mac, mac};

/// Longest packet of an involved probe, bytes.
pub const INVOLVED_BYTES_MAX: usize = 1_200;

/// Most data of a game in one packet, bytes.
pub const GAME_DATA_BYTES_MAX: usize = INVOLVED_BYTES_MAX - QUESTION_BYTES_BEFORE_DATA - QUESTION_MAC_BYTES;

/// Bytes of a question before its data.
const QUESTION_BYTES_BEFORE_DATA: usize = 50;
/// Bytes of a question after its data.
const QUESTION_MAC_BYTES: usize = 16;
/// Bytes of an answer before its data.
const ANSWER_BYTES_BEFORE_DATA: usize = 40;
/// Bytes of an answer after its data.
const ANSWER_MAC_BYTES: usize = 8;

/// Question of an involved probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Involved<'a> {
    /// Number, nonce, advertisement and stamp.
    pub question: ReturnedQuestionFields,
    /// Cookie of the answer to a quick probe of the same run.
    pub quick_reply_cookie: [u8; 16],
    /// Data for the host's game, such as its build: at most [`GAME_DATA_BYTES_MAX`].
    pub game_data: &'a [u8],
}

impl<'a> Involved<'a> {
    /// The packet. `None` if the game's data is too long.
    pub fn encode(&self, key: &ProbeKey) -> Option<Vec<u8>> {
        if GAME_DATA_BYTES_MAX < self.game_data.len() {
            return None;
        }
        let mut packet = vec![0; QUESTION_BYTES_BEFORE_DATA];
        self.question.write(&mut packet, PacketType::Involved, 0);
        packet[32..48].copy_from_slice(&self.quick_reply_cookie);
        packet[48..50].copy_from_slice(&(self.game_data.len() as u16).to_be_bytes());
        packet.extend(self.game_data);
        let code: [u8; QUESTION_MAC_BYTES] = mac(key.bytes(), &[&packet]);
        packet.extend(code);
        Some(packet)
    }

    /// Reads a packet that was written with the key. The caller checks the cookie.
    pub fn decode(packet: &'a [u8], key: &ProbeKey) -> Result<Self, PacketError> {
        let (signed, code) = split_off_mac::<QUESTION_MAC_BYTES>(packet, QUESTION_BYTES_BEFORE_DATA)?;
        let (flags, question) = ReturnedQuestionFields::read(signed, PacketType::Involved)?;
        if flags != 0 {
            return Err(PacketError::Flags);
        }
        let game_data = length_checked_data(signed, 48, QUESTION_BYTES_BEFORE_DATA)?;
        if !is_mac(key.bytes(), &[signed], &code) {
            return Err(PacketError::Mac);
        }
        Ok(Self { question, quick_reply_cookie: bytes_at(signed, 32), game_data })
    }
}

/// Answer of the host's game to a client's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// The client can join.
    Fits = 0,
    /// The client cannot join, now or later: another build or map, for example.
    Incompatible = 1,
    /// No seat is open.
    Full = 2,
}

/// Answer to an [`Involved`] question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvolvedReply<'a> {
    /// The question, as it arrived.
    pub question: ReturnedQuestionFields,
    /// Time for which the client leaves this host alone, in units of 10 ms.
    pub wait_10ms: u16,
    /// Time from the arrival of the question to this answer, in units of 10 µs.
    pub held_10us: u16,
    /// Answer of the game.
    pub verdict: Verdict,
    /// Data for the client's game.
    pub game_data: &'a [u8],
}

impl<'a> InvolvedReply<'a> {
    /// Bytes by which the data of an answer may be longer than that of its question: the packets are then equally long.
    pub const DATA_BYTES_BEYOND_QUESTION_MAX: usize =
        QUESTION_BYTES_BEFORE_DATA + QUESTION_MAC_BYTES - ANSWER_BYTES_BEFORE_DATA - ANSWER_MAC_BYTES;

    /// The packet. `None` if it would be longer than the question's packet.
    pub fn encode(&self, key: &ProbeKey, question_bytes: usize) -> Option<Vec<u8>> {
        if question_bytes.min(INVOLVED_BYTES_MAX) < ANSWER_BYTES_BEFORE_DATA + self.game_data.len() + ANSWER_MAC_BYTES {
            return None;
        }
        let mut packet = vec![0; ANSWER_BYTES_BEFORE_DATA];
        self.question.write(&mut packet, PacketType::InvolvedReply, 0);
        packet[32..34].copy_from_slice(&self.wait_10ms.to_be_bytes());
        packet[34..36].copy_from_slice(&self.held_10us.to_be_bytes());
        packet[36] = self.verdict as u8;
        packet[38..40].copy_from_slice(&(self.game_data.len() as u16).to_be_bytes());
        packet.extend(self.game_data);
        let code: [u8; ANSWER_MAC_BYTES] = mac(key.bytes(), &[&packet]);
        packet.extend(code);
        Some(packet)
    }

    /// Reads a packet that was written with the key.
    pub fn decode(packet: &'a [u8], key: &ProbeKey) -> Result<Self, PacketError> {
        let (signed, code) = split_off_mac::<ANSWER_MAC_BYTES>(packet, ANSWER_BYTES_BEFORE_DATA)?;
        let (flags, question) = ReturnedQuestionFields::read(signed, PacketType::InvolvedReply)?;
        if flags != 0 {
            return Err(PacketError::Flags);
        }
        check_padding(&signed[37..38])?;
        let verdict = match signed[36] {
            0 => Verdict::Fits,
            1 => Verdict::Incompatible,
            2 => Verdict::Full,
            _ => return Err(PacketError::Field),
        };
        let game_data = length_checked_data(signed, 38, ANSWER_BYTES_BEFORE_DATA)?;
        if !is_mac(key.bytes(), &[signed], &code) {
            return Err(PacketError::Mac);
        }
        let [wait_10ms, held_10us] = [32, 34].map(|at| u16::from_be_bytes(bytes_at(signed, at)));
        Ok(Self { question, wait_10ms, held_10us, verdict, game_data })
    }
}

/// The bytes before the code at the end of a packet, at least `least`, and the code.
fn split_off_mac<const N: usize>(packet: &[u8], least: usize) -> Result<(&[u8], [u8; N]), PacketError> {
    let (signed, code) = packet.split_last_chunk::<N>().ok_or(PacketError::Length)?;
    let fits = least <= signed.len() && packet.len() <= INVOLVED_BYTES_MAX;
    fits.then_some((signed, *code)).ok_or(PacketError::Length)
}

/// Data from `start` to the end, as long as the length field at `at` says.
fn length_checked_data(signed: &[u8], at: usize, start: usize) -> Result<&[u8], PacketError> {
    let data = &signed[start..];
    let is_counted = usize::from(u16::from_be_bytes(bytes_at(signed, at))) == data.len();
    is_counted.then_some(data).ok_or(PacketError::Length)
}

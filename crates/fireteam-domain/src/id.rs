//! Names of things, as types, so that an advertisement is never taken for a reservation nor a set for a silo.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use sha2::{Digest, Sha256};

/// Defines a 16-byte name that is written as 32 lower-case hexadecimal digits. Byte order and text order agree.
macro_rules! sixteen_byte_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Wraps sixteen bytes; every value is valid.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The sixteen bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }

            /// Reads 32 hexadecimal digits of either case; `None` for anything else.
            pub fn parse(text: &str) -> Option<Self> {
                parse_hex(text).map(Self)
            }

            /// As it is written, in ASCII.
            pub fn digits(&self) -> [u8; 32] {
                hex_digits(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(std::str::from_utf8(&self.digits()).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

sixteen_byte_name! {
    /// One advertisement. Chosen by the server, so nobody can aim at another's.
    AdvertisementId
}

sixteen_byte_name! {
    /// One reservation of seats in an advertisement.
    ReservationId
}

sixteen_byte_name! {
    /// One ticket. Derived from the caller and its idempotency key, so that a retried enter is the same ticket.
    TicketId
}

sixteen_byte_name! {
    /// One match, from the proposal on.
    MatchId
}

sixteen_byte_name! {
    /// A user, player or caller as the server remembers it: a digest, so that no account name is kept in memory or at rest.
    UserKey
}

impl UserKey {
    /// The first 16 bytes of the SHA-256 of `name`.
    pub fn from_name(name: &str) -> Self {
        Self::from_digest_prefix(Sha256::digest(name.as_bytes()).into())
    }

    /// As `of`, for a name of several parts; no list of parts and no single name ever share a digest's input. A byte that
    /// no text has comes first, and each part's length before the part.
    pub fn from_parts(parts: &[&str]) -> Self {
        let mut digest = Sha256::new_with_prefix([0xFF]);
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self::from_digest_prefix(digest.finalize().into())
    }

    fn from_digest_prefix(digest: [u8; 32]) -> Self {
        Self(std::array::from_fn(|at| digest[at]))
    }
}

/// Sixteen bytes as digits; ids are written in every answer, and `{:02x}` takes its time.
fn hex_digits(bytes: [u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    digits
}

/// Hashes ids for maps: they are outputs of a keyed hash or of dice, which nobody can choose, so eight of their bytes
/// are hash enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

/// Makes `IdHasher`s.
pub type BuildIdHasher = BuildHasherDefault<IdHasher>;

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut all = 0;
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (HEX_DIGIT_VALUES[usize::from(pair[0])], HEX_DIGIT_VALUES[usize::from(pair[1])]);
        all |= high | low;
        *byte = high << 4 | low;
    }
    (all < 16).then_some(bytes)
}

/// What each character stands for; 255 for those that are no digit. Every update and every excluded candidate names an
/// id, and looking up is quicker than asking.
const HEX_DIGIT_VALUES: [u8; 256] = {
    let mut nibbles = [255; 256];
    let mut nibble = 0;
    while nibble < 16 {
        let digit = b"0123456789abcdef"[nibble as usize];
        nibbles[digit as usize] = nibble;
        nibbles[digit.to_ascii_uppercase() as usize] = nibble;
        nibble += 1;
    }
    nibbles
};

/// A matchmaking set: one playlist, one ruleset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u32);

/// A population that never meets another: build, platform group, test realm, region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiloId(pub u64);

/// The service configuration hash: names a ruleset's meaning, not its spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulesetHash(pub u32);

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SiloId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RulesetHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_text_round_trips_and_rejects_other_characters() {
        let id = AdvertisementId::from_bytes([0xab; 16]);
        assert_eq!(id.to_string(), "ab".repeat(16));
        assert_eq!(AdvertisementId::parse(&id.to_string()), Some(id));
        assert_eq!(AdvertisementId::parse("zz"), None);
        assert_eq!(AdvertisementId::parse("0123456789abcdefABCDEF0123456789").map(|id| id.to_string()).as_deref(), {
            Some("0123456789abcdefabcdef0123456789")
        });
        for other in (0..=u8::MAX).map(char::from).filter(|it| !it.is_ascii_hexdigit()) {
            let text: String = std::iter::once(other).chain("0".repeat(32 - other.len_utf8()).chars()).collect();
            assert_eq!(AdvertisementId::parse(&text), None, "{text}");
        }
    }
}

//! Typed ids: advertisement, reservation, ticket, match, user, set, silo and ruleset hash.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use sha2::{Digest, Sha256};

/// Defines a 16-byte id with a text form of 32 lower-case hexadecimal digits. Bytes and text sort in the same order.
macro_rules! sixteen_byte_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Wraps 16 bytes; every value is valid.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The 16 bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }

            /// Parses 32 hexadecimal digits, upper or lower case; `None` for any other text.
            pub fn parse(text: &str) -> Option<Self> {
                parse_hex(text).map(Self)
            }

            /// The 32 lower-case hexadecimal digits, in ASCII.
            pub fn to_hex(self) -> [u8; 32] {
                hex_digits(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(std::str::from_utf8(&self.to_hex()).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

sixteen_byte_id! {
    /// Advertisement id. The server derives it, so callers cannot choose another caller's id.
    AdvertisementId
}

impl AdvertisementId {
    /// First eight bytes. Ids come from a keyed hash, so two of a set practically never share them.
    pub fn first_eight_bytes(&self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }
}

sixteen_byte_id! {
    /// Reservation id: seats reserved in an advertisement.
    ReservationId
}

sixteen_byte_id! {
    /// Ticket id, derived from the caller and its idempotency key, so that a retried enter returns the same ticket.
    TicketId
}

sixteen_byte_id! {
    /// Match id, assigned with the proposal.
    MatchId
}

sixteen_byte_id! {
    /// Consent id, drawn at random for each consent that a player grants.
    ConsentId
}

sixteen_byte_id! {
    /// Digest of a user, player or caller name. The server stores no account name, neither in memory nor on disk.
    UserKey
}

/// Last bytes of each key that took the place of an erased user. One digest in 2^64 ends so.
const ERASED_MARK: [u8; 8] = *b"\0erased\0";

impl UserKey {
    /// First 16 bytes of the SHA-256 of `name`.
    pub fn from_name(name: &str) -> Self {
        Self::from_digest_prefix(Sha256::digest(name.as_bytes()).into())
    }

    /// Like `from_name`, for a name of several parts. Digest inputs of part lists and of single names are always
    /// distinct: the input starts with 0xFF, which no UTF-8 text contains, and each part follows its length.
    pub fn from_name_parts(parts: &[&str]) -> Self {
        let mut digest = Sha256::new_with_prefix([0xFF]);
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self::from_digest_prefix(digest.finalize().into())
    }

    /// Key of a client of `user`. Equal only for the same user and the same client.
    pub fn of_client_of_user(user: UserKey, client: UserKey) -> Self {
        let mut digest = Sha256::new_with_prefix([0xFF, 0xFE]);
        digest.update(user.as_bytes());
        digest.update(client.as_bytes());
        Self::from_digest_prefix(digest.finalize().into())
    }

    /// Key that takes the place of an erased user in the record `id`. It depends on `seed`, which is random and forgotten, and
    /// ends with [`ERASED_MARK`].
    pub fn of_erased(seed: &[u8; 16], id: &[u8; 16]) -> Self {
        let mut digest = Sha256::new_with_prefix([0xFF, 0xFD]);
        digest.update(seed);
        digest.update(id);
        let digest: [u8; 32] = digest.finalize().into();
        Self(std::array::from_fn(|at| if at < 8 { digest[at] } else { ERASED_MARK[at - 8] }))
    }

    /// Whether the key took the place of an erased user.
    pub fn is_erased(self) -> bool {
        self.0.ends_with(&ERASED_MARK)
    }

    fn from_digest_prefix(digest: [u8; 32]) -> Self {
        Self(std::array::from_fn(|at| digest[at]))
    }
}

/// 16 bytes as hexadecimal digits. Every response contains ids, and `{:02x}` formatting is slower.
fn hex_digits(bytes: [u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    digits
}

/// Hasher for maps keyed by ids. Ids come from a keyed hash or a random generator and callers cannot choose them, so
/// eight of their bytes serve as the hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

/// `BuildHasher` for [`IdHasher`].
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
    let mut all_bits = 0;
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (HEX_DIGIT_VALUES[usize::from(pair[0])], HEX_DIGIT_VALUES[usize::from(pair[1])]);
        all_bits |= high | low;
        *byte = high << 4 | low;
    }
    (all_bits < 16).then_some(bytes)
}

/// Value of each hexadecimal digit; 255 for other bytes. Requests contain many ids, and a table lookup is faster than
/// comparisons.
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

/// Matchmaking set id: one playlist with one ruleset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u32);

/// Silo id: an isolated population, such as a build, platform group, test realm or region. Silos are never mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiloId(pub u64);

/// Service configuration hash of a ruleset. Two files with the same meaning have the same hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulesetHash(pub u32);

/// Key of a group of ratings: those of one pool on one scale. A user has at most one rating per key.
///
/// The ratings of a set on its first scale have the set id as key, so that servers from before this key find them. All
/// other keys are digests with the highest bit set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RatingKey(u64);

impl RatingKey {
    const DIGEST_BIT: u64 = 1 << 63;

    /// Key of a set's own ratings on the first scale that the set had.
    pub const fn of_set_on_first_scale(set_id: SetId) -> Self {
        Self(set_id.0 as u64)
    }

    /// Key from the first 64 bits of a digest of pool and scale.
    pub const fn of_pool_and_scale_digest(first_bits: u64) -> Self {
        Self(first_bits | Self::DIGEST_BIT)
    }

    /// Whether the key is a digest of pool and scale, and not the set of a first scale.
    pub const fn is_pool_and_scale_digest(self) -> bool {
        self.0 & Self::DIGEST_BIT != 0
    }

    /// Stored number: the set id, or negative for a digest.
    pub const fn to_stored(self) -> i64 {
        self.0.cast_signed()
    }

    /// Key with a stored number; `None` if no key has it.
    pub fn from_stored(number: i64) -> Option<Self> {
        let is_valid = number < 0 || u32::try_from(number).is_ok();
        is_valid.then_some(Self(number.cast_unsigned()))
    }
}

impl fmt::Debug for RatingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_pool_and_scale_digest() {
            false => write!(f, "RatingKey(first scale of set {})", self.0),
            true => write!(f, "RatingKey({:016x})", self.0),
        }
    }
}

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
    fn rating_key_of_a_first_scale_is_the_set_id_and_of_a_digest_is_negative() {
        for set_id in [SetId(0), SetId(11), SetId(u32::MAX)] {
            let key = RatingKey::of_set_on_first_scale(set_id);
            assert_eq!((key.to_stored(), key.is_pool_and_scale_digest()), (i64::from(set_id.0), false));
            assert_eq!(RatingKey::from_stored(key.to_stored()), Some(key));
        }
        for first_bits in [0, 11, u64::MAX] {
            let key = RatingKey::of_pool_and_scale_digest(first_bits);
            assert!(key.to_stored() < 0 && key.is_pool_and_scale_digest(), "{key:?}");
            assert_eq!(RatingKey::from_stored(key.to_stored()), Some(key));
        }
        assert_eq!(RatingKey::from_stored(1 << 32), None);
    }

    #[test]
    fn id_text_round_trips_and_rejects_other_characters() {
        let id = AdvertisementId::from_bytes([0xab; 16]);
        assert_eq!(id.to_string(), "ab".repeat(16));
        assert_eq!(AdvertisementId::parse(&id.to_string()), Some(id));
        assert_eq!(AdvertisementId::parse("zz"), None);
        assert_eq!(AdvertisementId::parse("0123456789abcdefABCDEF0123456789").map(|id| id.to_string()).as_deref(), {
            Some("0123456789abcdefabcdef0123456789")
        });
        for other in (0..=u8::MAX).map(char::from).filter(|character| !character.is_ascii_hexdigit()) {
            let text: String = std::iter::once(other).chain("0".repeat(32 - other.len_utf8()).chars()).collect();
            assert_eq!(AdvertisementId::parse(&text), None, "{text}");
        }
    }
}

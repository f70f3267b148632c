//! Stateless tokens: what the server would have to remember about a client, signed and handed to the client.
//!
//! | bytes | meaning                                                                          |
//! |-------|----------------------------------------------------------------------------------|
//! | 1     | version of this layout                                                           |
//! | 1     | kind of claim, so that one kind of token is never another                        |
//! | 4     | which key signed it                                                              |
//! | n     | the claim, of fixed length for its kind; numbers big-endian                      |
//! | 16    | HMAC-SHA256 of all before, cut to 128 bits (RFC 2104, section 5, allows the cut) |
//!
//! Tokens are signed, not secret: nothing in them is news to whoever holds one.

mod claim;

use std::fmt;
use std::sync::LazyLock;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::domain::id::{AdvertisementId, MatchId, ReservationId, SetId, TicketId, UserKey};

pub use claim::{AdvertisementClaim, Claim, ConsentClaim, HeardClaim, ReservationClaim, SearchClaim, TicketClaim};

/// Bytes of a signing key.
pub const KEY_BYTES: usize = 32;
/// Bytes in a token at most. What is longer is refused before anything is computed.
pub const TOKEN_BYTES_MAX: usize = 128;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + 1 + 4;
const MAC_BYTES: usize = 16;

const _: () = assert!(HEAD_BYTES + AdvertisementClaim::LENGTH + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + SearchClaim::LENGTH + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + ReservationClaim::LENGTH + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + ConsentClaim::LENGTH + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + TicketClaim::LENGTH + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEAD_BYTES + HeardClaim::LENGTH + MAC_BYTES <= TOKEN_BYTES_MAX);

/// What a digest is for; part of what is signed, so that one purpose's digest is worth nothing for another.
#[derive(Clone, Copy)]
enum Purpose {
    KeyId,
    Token,
    AdvertisementId,
    ReservationId,
    Party,
    TicketId,
    MatchPlayer,
}

/// Signs tokens with the current key; opens those of the current and the previous one. Replicas share the keys.
#[derive(Clone)]
pub struct Signer {
    current: Key,
    previous: Option<Key>,
}

#[derive(Clone)]
struct Key {
    id: [u8; 4],
    /// HMAC with the key taken in: half of the work of a short digest, done once.
    keyed: Hmac<Sha256>,
}

/// Digests that depend on no secret.
static NO_KEY: LazyLock<Key> = LazyLock::new(|| Key::new([0; KEY_BYTES]));

impl fmt::Debug for Signer {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("keys", &(1 + usize::from(self.previous.is_some()))).finish_non_exhaustive()
    }
}

impl Signer {
    /// Signs with `current`; still opens what `previous` signed.
    pub fn new(current: [u8; KEY_BYTES], previous: Option<[u8; KEY_BYTES]>) -> Self {
        Self { current: Key::new(current), previous: previous.map(Key::new) }
    }

    /// A token that says `claim`.
    pub fn seal<C: Claim>(&self, claim: &C) -> Vec<u8> {
        let mut token = Vec::with_capacity(HEAD_BYTES + C::LENGTH + MAC_BYTES);
        token.extend([VERSION, C::KIND]);
        token.extend(self.current.id);
        claim.write(&mut token);
        debug_assert_eq!(token.len(), HEAD_BYTES + C::LENGTH);
        let mac = self.current.digest(Purpose::Token, &[&token]);
        token.extend(mac);
        token
    }

    /// Whether sealing what `token` says, which has been opened, would make the very same token: it was signed with the
    /// current key, and sealing has but one answer.
    pub fn would_seal_again(&self, token: &[u8]) -> bool {
        token.get(2..HEAD_BYTES) == Some(&self.current.id)
    }

    /// What `token` says, if one of the keys signed it as this kind of claim; `None` for everything else, with no word
    /// on why.
    pub fn open<C: Claim>(&self, token: &[u8]) -> Option<C> {
        if token.len() != HEAD_BYTES + C::LENGTH + MAC_BYTES || token[..2] != [VERSION, C::KIND] {
            return None;
        }
        let (said, mac) = token.split_at(token.len() - MAC_BYTES);
        let signed_with = |key: &&Key| key.id == said[2..HEAD_BYTES];
        let key = [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(signed_with)?;
        let expected = key.digest(Purpose::Token, &[said]);
        bool::from(expected.ct_eq(mac)).then(|| C::read(&said[HEAD_BYTES..])).flatten()
    }

    /// The advertisement that `caller` means by `idempotency_key`: the same three are always the same advertisement, on
    /// every replica, until the current key changes. Nobody without the key can aim at another's.
    pub fn advertisement_id(&self, caller: Option<UserKey>, set_id: SetId, idempotency_key: &str) -> AdvertisementId {
        let parts = [&subject_bytes(caller)[..], &set_id.0.to_be_bytes(), idempotency_key.as_bytes()];
        AdvertisementId::from_bytes(self.current.digest(Purpose::AdvertisementId, &parts))
    }

    /// The reservation that `caller` means by `idempotency_key` in an advertisement; as `advertisement_id`.
    pub fn reservation_id(
        &self,
        caller: Option<UserKey>,
        advertisement_id: AdvertisementId,
        idempotency_key: &str,
    ) -> ReservationId {
        let parts = [&subject_bytes(caller)[..], advertisement_id.as_bytes(), idempotency_key.as_bytes()];
        ReservationId::from_bytes(self.current.digest(Purpose::ReservationId, &parts))
    }

    /// The ticket that `caller` means by `idempotency_key`; as `advertisement_id`.
    pub fn ticket_id(&self, caller: Option<UserKey>, set_id: SetId, idempotency_key: &str) -> TicketId {
        let parts = [&subject_bytes(caller)[..], &set_id.0.to_be_bytes(), idempotency_key.as_bytes()];
        TicketId::from_bytes(self.current.digest(Purpose::TicketId, &parts))
    }

    /// What a player is called in a match, by whoever is in it: nobody knows an account by it, nor the player again in the
    /// next one. A match during which keys rotate calls its players by two names.
    pub fn player_key(&self, play: MatchId, user: UserKey) -> UserKey {
        UserKey::from_bytes(self.current.digest(Purpose::MatchPlayer, &[play.as_bytes(), user.as_bytes()]))
    }

    /// A digest of who searches: the caller, the users in their order and the size of each party. A search token is good
    /// for them alone. It depends on no key, so that it outlives a rotation.
    pub fn party_digest(caller: Option<UserKey>, users: &[UserKey], party_sizes: &[u8]) -> [u8; 16] {
        let users: Vec<u8> = users.iter().flat_map(|user| *user.as_bytes()).collect();
        NO_KEY.digest(Purpose::Party, &[&subject_bytes(caller), &users, party_sizes])
    }
}

impl Key {
    fn new(secret: [u8; KEY_BYTES]) -> Self {
        let mut key = Self { id: [0; 4], keyed: keyed(&secret) };
        let digest = key.digest(Purpose::KeyId, &[]);
        key.id.copy_from_slice(&digest[..4]);
        key
    }

    /// The first half of HMAC-SHA256 over purpose and parts. Each part is preceded by its length, so that no two lists
    /// of parts are the same bytes.
    fn digest(&self, purpose: Purpose, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut mac = self.keyed.clone();
        mac.update(&[purpose as u8]);
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let whole: [u8; 32] = mac.finalize().into_bytes().into();
        std::array::from_fn(|at| whole[at])
    }
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
fn keyed(secret: &[u8; KEY_BYTES]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("any length will do")
}

/// A caller in 17 bytes, so that none and a key of zeros differ.
fn subject_bytes(subject: Option<UserKey>) -> [u8; 17] {
    let mut bytes = [0; 17];
    if let Some(subject) = subject {
        bytes[0] = 1;
        bytes[1..].copy_from_slice(subject.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;

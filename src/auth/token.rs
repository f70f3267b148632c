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

pub use claim::{AdvertisementClaim, Claim, ConsentClaim, ReservationClaim, ResumeClaim, SearchClaim, TicketClaim};

/// Bytes of a signing key.
pub const SIGNING_KEY_BYTES: usize = 32;
/// Bytes in a token at most. What is longer is refused before anything is computed.
pub const TOKEN_BYTES_MAX: usize = 128;

const LAYOUT_VERSION: u8 = 1;
const HEADER_BYTES: usize = 1 + 1 + 4;
const MAC_BYTES: usize = 16;

const _: () = assert!(HEADER_BYTES + AdvertisementClaim::ENCODED_BYTES + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + SearchClaim::ENCODED_BYTES + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + ReservationClaim::ENCODED_BYTES + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + ConsentClaim::ENCODED_BYTES + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + TicketClaim::ENCODED_BYTES + MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + ResumeClaim::ENCODED_BYTES + MAC_BYTES <= TOKEN_BYTES_MAX);

/// What a digest is for; part of what is signed, so that one purpose's digest is worth nothing for another.
#[derive(Clone, Copy)]
enum DigestPurpose {
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
pub struct TokenSigner {
    current: SigningKey,
    previous: Option<SigningKey>,
}

#[derive(Clone)]
struct SigningKey {
    key_id: [u8; 4],
    /// HMAC with the key taken in: half of the work of a short digest, done once.
    hmac: Hmac<Sha256>,
}

/// Digests that depend on no secret.
static KEYLESS_DIGEST: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::new([0; SIGNING_KEY_BYTES]));

impl fmt::Debug for TokenSigner {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("keys", &(1 + usize::from(self.previous.is_some()))).finish_non_exhaustive()
    }
}

impl TokenSigner {
    /// Signs with `current`; still opens what `previous` signed.
    pub fn new(current: [u8; SIGNING_KEY_BYTES], previous: Option<[u8; SIGNING_KEY_BYTES]>) -> Self {
        Self { current: SigningKey::new(current), previous: previous.map(SigningKey::new) }
    }

    /// A token that says `claim`.
    pub fn sign<C: Claim>(&self, claim: &C) -> Vec<u8> {
        let mut token = Vec::with_capacity(HEADER_BYTES + C::ENCODED_BYTES + MAC_BYTES);
        token.extend([LAYOUT_VERSION, C::KIND_BYTE]);
        token.extend(self.current.key_id);
        claim.encode(&mut token);
        debug_assert_eq!(token.len(), HEADER_BYTES + C::ENCODED_BYTES);
        let mac = self.current.digest(DigestPurpose::Token, &[&token]);
        token.extend(mac);
        token
    }

    /// Whether sealing what `token` says, which has been opened, would make the very same token: it was signed with the
    /// current key, and sealing has but one answer.
    pub fn is_signed_with_current_key(&self, token: &[u8]) -> bool {
        token.get(2..HEADER_BYTES) == Some(&self.current.key_id)
    }

    /// What `token` says, if one of the keys signed it as this kind of claim; `None` for everything else, with no word
    /// on why.
    pub fn verify<C: Claim>(&self, token: &[u8]) -> Option<C> {
        if token.len() != HEADER_BYTES + C::ENCODED_BYTES + MAC_BYTES || token[..2] != [LAYOUT_VERSION, C::KIND_BYTE] {
            return None;
        }
        let (said, mac) = token.split_at(token.len() - MAC_BYTES);
        let signed_with = |key: &&SigningKey| key.key_id == said[2..HEADER_BYTES];
        let key = [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(signed_with)?;
        let expected = key.digest(DigestPurpose::Token, &[said]);
        bool::from(expected.ct_eq(mac)).then(|| C::decode(&said[HEADER_BYTES..])).flatten()
    }

    /// The advertisement that `caller` means by `idempotency_key`: the same three are always the same advertisement, on
    /// every replica, until the current key changes. Nobody without the key can aim at another's.
    pub fn derive_advertisement_id(
        &self,
        caller: Option<UserKey>,
        set_id: SetId,
        idempotency_key: &str,
    ) -> AdvertisementId {
        let parts = [&encode_subject(caller)[..], &set_id.0.to_be_bytes(), idempotency_key.as_bytes()];
        AdvertisementId::from_bytes(self.current.digest(DigestPurpose::AdvertisementId, &parts))
    }

    /// The reservation that `caller` means by `idempotency_key` in an advertisement; as `advertisement_id`.
    pub fn derive_reservation_id(
        &self,
        caller: Option<UserKey>,
        advertisement_id: AdvertisementId,
        idempotency_key: &str,
    ) -> ReservationId {
        let parts = [&encode_subject(caller)[..], advertisement_id.as_bytes(), idempotency_key.as_bytes()];
        ReservationId::from_bytes(self.current.digest(DigestPurpose::ReservationId, &parts))
    }

    /// The ticket that `caller` means by `idempotency_key`; as `advertisement_id`.
    pub fn derive_ticket_id(&self, caller: Option<UserKey>, set_id: SetId, idempotency_key: &str) -> TicketId {
        let parts = [&encode_subject(caller)[..], &set_id.0.to_be_bytes(), idempotency_key.as_bytes()];
        TicketId::from_bytes(self.current.digest(DigestPurpose::TicketId, &parts))
    }

    /// What a player is called in a match, by whoever is in it: nobody knows an account by it, nor the player again in the
    /// next one. A match during which keys rotate calls its players by two names.
    pub fn derive_player_key(&self, play: MatchId, user: UserKey) -> UserKey {
        UserKey::from_bytes(self.current.digest(DigestPurpose::MatchPlayer, &[play.as_bytes(), user.as_bytes()]))
    }

    /// A digest of who searches: the caller, the users in their order and the size of each party. A search token is good
    /// for them alone. It depends on no key, so that it outlives a rotation.
    pub fn party_digest(caller: Option<UserKey>, users: &[UserKey], party_sizes: &[u8]) -> [u8; 16] {
        let users: Vec<u8> = users.iter().flat_map(|user| *user.as_bytes()).collect();
        KEYLESS_DIGEST.digest(DigestPurpose::Party, &[&encode_subject(caller), &users, party_sizes])
    }
}

impl SigningKey {
    fn new(secret: [u8; SIGNING_KEY_BYTES]) -> Self {
        let mut key = Self { key_id: [0; 4], hmac: new_hmac(&secret) };
        let digest = key.digest(DigestPurpose::KeyId, &[]);
        key.key_id.copy_from_slice(&digest[..4]);
        key
    }

    /// The first half of HMAC-SHA256 over purpose and parts. Each part is preceded by its length, so that no two lists
    /// of parts are the same bytes.
    fn digest(&self, purpose: DigestPurpose, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut mac = self.hmac.clone();
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
fn new_hmac(secret: &[u8; SIGNING_KEY_BYTES]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("any length will do")
}

/// A caller in 17 bytes, so that none and a key of zeros differ.
fn encode_subject(subject: Option<UserKey>) -> [u8; 17] {
    let mut bytes = [0; 17];
    if let Some(subject) = subject {
        bytes[0] = 1;
        bytes[1..].copy_from_slice(subject.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;

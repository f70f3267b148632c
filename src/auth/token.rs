//! Stateless signed tokens: state about a client that the client stores, protected by an HMAC.
//!
//! | bytes | meaning                                                                          |
//! |-------|----------------------------------------------------------------------------------|
//! | 1     | version of this layout                                                           |
//! | 1     | kind of claim, so that a token of one kind is never accepted as another          |
//! | 4     | id of the signing key                                                            |
//! | n     | the claim; numbers big-endian                                                    |
//! | 16    | HMAC-SHA256 of all before, truncated to 128 bits (RFC 2104, section 5)           |
//!
//! Tokens are signed, not encrypted: they contain nothing that their holder may not know.

mod claim;
mod handle;
mod latency_claim;
mod probe_record;

use std::fmt;
use std::sync::LazyLock;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::auth::block_cipher::BlockCipher;
use crate::auth::token::claim::encode_optional_caller;
use crate::domain::id::{AdvertisementId, MatchId, ReservationId, SetId, TicketId, UserKey};
use crate::domain::time::UnixMs;

pub use claim::{
    AdvertisementClaim, AllocationOfferClaim, Claim, ConsentClaim, ConsentPurpose, MeasuredSearchClaim,
    ReservationClaim, SearchClaim, SearchMeasurements, TicketClaim, TicketSeatClaim, WatchResumeClaim,
};
pub use latency_claim::{BeaconRoundTrip, BeaconRoundTripSource, LATENCY_ENTRIES_MAX, LatencyClaim};
pub use probe_record::{PacketCounts, ProbeRecord, RecordedFinding};

pub use handle::{ADVERTISEMENT_HANDLE_WINDOW_MS, AdvertisementHandleCipher};

/// Length of a signing key, bytes.
pub const SIGNING_KEY_BYTES: usize = 32;
/// Maximum length of a token, bytes. A longer one is rejected before any computation.
pub const TOKEN_BYTES_MAX: usize = 1_024;

const LAYOUT_VERSION: u8 = 1;
const HEADER_BYTES: usize = 1 + 1 + 4;
const TRUNCATED_MAC_BYTES: usize = 16;

const _: () = assert!(HEADER_BYTES + AdvertisementClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + SearchClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + MeasuredSearchClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + LatencyClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + ReservationClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + ConsentClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + TicketSeatClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + TicketClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + AllocationOfferClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + WatchResumeClaim::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES <= TOKEN_BYTES_MAX);

/// Purpose of a digest. It is part of the signed bytes, so a digest for one purpose is invalid for another.
#[derive(Clone, Copy)]
enum DigestPurpose {
    KeyId,
    Token,
    AdvertisementId,
    ReservationId,
    Party,
    TicketId,
    MatchPlayer,
    Search,
    HandleKey,
    Request,
    MatchId,
    StartMatch,
}

/// Signs tokens with the current key; verifies tokens of the current and the previous key. Replicas share the keys.
#[derive(Clone)]
pub struct HmacTokenSigner {
    current: HmacKey,
    previous: Option<HmacKey>,
}

#[derive(Clone)]
struct HmacKey {
    key_id: [u8; 4],
    /// HMAC state after absorbing the key: half of the work of a short digest, done once.
    hmac: Hmac<Sha256>,
}

/// Constant key of zeros, for digests that depend on no secret.
static ZERO_HMAC_KEY: LazyLock<HmacKey> = LazyLock::new(|| HmacKey::new([0; SIGNING_KEY_BYTES]));

impl fmt::Debug for HmacTokenSigner {
    /// Prints the number of keys, never a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HmacTokenSigner")
            .field("keys", &(1 + usize::from(self.previous.is_some())))
            .finish_non_exhaustive()
    }
}

impl HmacTokenSigner {
    /// Signs with `current`; also verifies tokens signed with `previous`.
    pub fn new(current: [u8; SIGNING_KEY_BYTES], previous: Option<[u8; SIGNING_KEY_BYTES]>) -> Self {
        Self { current: HmacKey::new(current), previous: previous.map(HmacKey::new) }
    }

    /// Encodes and signs `claim` as a token.
    pub fn sign<C: Claim>(&self, claim: &C) -> Vec<u8> {
        let mut token = Vec::with_capacity(HEADER_BYTES + C::ENCODED_BYTES_MAX + TRUNCATED_MAC_BYTES);
        token.extend([LAYOUT_VERSION, C::KIND_BYTE]);
        token.extend(self.current.key_id);
        claim.encode(&mut token);
        debug_assert!(token.len() <= HEADER_BYTES + C::ENCODED_BYTES_MAX);
        let mac = self.current.digest(DigestPurpose::Token, &[&token]);
        token.extend(mac);
        token
    }

    /// Whether a verified token carries the id of the current key. Signing is deterministic, so signing its claim again
    /// would give the same bytes.
    pub fn is_signed_with_current_key(&self, token: &[u8]) -> bool {
        token.get(2..HEADER_BYTES) == Some(&self.current.key_id)
    }

    /// Verifies `token` and decodes its claim; `None`, without a reason, unless one of the keys signed this kind of claim.
    pub fn verify<C: Claim>(&self, token: &[u8]) -> Option<C> {
        let around = HEADER_BYTES + TRUNCATED_MAC_BYTES;
        if !(around + C::ENCODED_BYTES_MIN..=around + C::ENCODED_BYTES_MAX).contains(&token.len())
            || token[..2] != [LAYOUT_VERSION, C::KIND_BYTE]
        {
            return None;
        }
        let (signed, mac) = token.split_at(token.len() - TRUNCATED_MAC_BYTES);
        let has_key_id = |key: &&HmacKey| key.key_id == signed[2..HEADER_BYTES];
        let key = [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(has_key_id)?;
        let expected_mac = key.digest(DigestPurpose::Token, &[signed]);
        bool::from(expected_mac.ct_eq(mac)).then(|| C::decode(&signed[HEADER_BYTES..])).flatten()
    }

    /// Derives an advertisement id from caller, set and idempotency key.
    ///
    /// The same three inputs give the same id on every replica until the current key changes. The id cannot be computed
    /// without the key, so a caller cannot produce the id of another caller.
    pub fn derive_advertisement_id(&self, caller: Option<UserKey>, idempotency_key: &str) -> AdvertisementId {
        let parts = [&encode_optional_caller(caller)[..], idempotency_key.as_bytes()];
        AdvertisementId::from_bytes(self.current.digest(DigestPurpose::AdvertisementId, &parts))
    }

    /// Advertisement id as version 0.2.0 derived it: a key in another set was another advertisement.
    pub fn legacy_advertisement_id(
        &self,
        caller: Option<UserKey>,
        set_id: SetId,
        idempotency_key: &str,
    ) -> AdvertisementId {
        let parts = [&encode_optional_caller(caller)[..], &set_id.0.to_be_bytes(), idempotency_key.as_bytes()];
        AdvertisementId::from_bytes(self.current.digest(DigestPurpose::AdvertisementId, &parts))
    }

    /// Derives a reservation id from caller, advertisement and idempotency key, as `derive_advertisement_id` does.
    pub fn derive_reservation_id(
        &self,
        caller: Option<UserKey>,
        advertisement_id: AdvertisementId,
        idempotency_key: &str,
    ) -> ReservationId {
        let parts = [&encode_optional_caller(caller)[..], advertisement_id.as_bytes(), idempotency_key.as_bytes()];
        ReservationId::from_bytes(self.current.digest(DigestPurpose::ReservationId, &parts))
    }

    /// Derives a ticket id from caller and idempotency key, as `derive_advertisement_id` does.
    pub fn derive_ticket_id(&self, caller: Option<UserKey>, idempotency_key: &str) -> TicketId {
        let parts = [&encode_optional_caller(caller)[..], idempotency_key.as_bytes()];
        TicketId::from_bytes(self.current.digest(DigestPurpose::TicketId, &parts))
    }

    /// Ticket id as version 0.2.0 derived it: a key in another set was another ticket.
    pub fn legacy_ticket_id(&self, caller: Option<UserKey>, set_id: SetId, idempotency_key: &str) -> TicketId {
        let parts = [&encode_optional_caller(caller)[..], &set_id.0.to_be_bytes(), idempotency_key.as_bytes()];
        TicketId::from_bytes(self.current.digest(DigestPurpose::TicketId, &parts))
    }

    /// Derives the id of a session's match from advertisement and idempotency key, as `derive_advertisement_id` does.
    pub fn derive_session_match_id(&self, advertisement_id: AdvertisementId, idempotency_key: &str) -> MatchId {
        let parts = [&advertisement_id.as_bytes()[..], idempotency_key.as_bytes()];
        MatchId::from_bytes(self.current.digest(DigestPurpose::MatchId, &parts))
    }

    /// Derives the id of a party's ticket in a session's match from the match and the party's reservation; `None` for the host's
    /// own party.
    pub fn derive_session_match_ticket_id(&self, match_id: MatchId, reservation: Option<ReservationId>) -> TicketId {
        let reservation = reservation.as_ref().map_or(&[][..], |id| &id.as_bytes()[..]);
        TicketId::from_bytes(self.current.digest(DigestPurpose::TicketId, &[match_id.as_bytes(), reservation]))
    }

    /// Digest of a request to start a session's match: the users of the host's own party, and for each team, whether that party
    /// is in it, and its reservations. It depends on no key, so it survives a key rotation.
    pub fn keyless_start_match_digest<'a>(
        host_party: &[UserKey],
        teams: impl IntoIterator<Item = (bool, &'a [ReservationId])>,
    ) -> [u8; 16] {
        let encode = |(has_host_party, ids): (bool, &[ReservationId])| {
            let ids = ids.iter().flat_map(|id| *id.as_bytes());
            [u8::from(has_host_party)].into_iter().chain(ids).collect::<Vec<u8>>()
        };
        let host_party: Vec<u8> = host_party.iter().flat_map(|user| *user.as_bytes()).collect();
        let teams: Vec<Vec<u8>> = teams.into_iter().map(encode).collect();
        let parts: Vec<&[u8]> = [&host_party[..]].into_iter().chain(teams.iter().map(Vec::as_slice)).collect();
        ZERO_HMAC_KEY.digest(DigestPurpose::StartMatch, &parts)
    }

    /// Key by which servers of version 0.2.0 name a player of a match. It changes when the signing key rotates, so
    /// [`PublicUserKeySecret`](crate::auth::public_user_keys::PublicUserKeySecret) names players now; this key is still accepted.
    pub fn legacy_match_player_key(&self, match_id: MatchId, user: UserKey) -> UserKey {
        UserKey::from_bytes(self.current.digest(DigestPurpose::MatchPlayer, &[match_id.as_bytes(), user.as_bytes()]))
    }

    /// Id of a search: the same for all tokens of a search, and different for two searches. It depends on no key, so it
    /// survives a key rotation.
    pub fn search_id(search: &SearchClaim) -> [u8; 16] {
        let SearchClaim { set_id, ruleset_hash: _, silo, party_digest, started_at, last_issued_at: _ } = search;
        let numbers = (set_id.0.to_be_bytes(), silo.0.to_be_bytes(), started_at.0.to_be_bytes());
        ZERO_HMAC_KEY.digest(DigestPurpose::Search, &[&numbers.0, &numbers.1, &numbers.2, party_digest])
    }

    /// Cipher that seals the ids for a party at `now`.
    pub fn advertisement_handle_cipher(&self, party_digest: [u8; 16], now: UnixMs) -> AdvertisementHandleCipher {
        self.current.advertisement_handle_cipher(party_digest, handle::window_at(now))
    }

    /// Ids that a handle for a party may stand for at `now`: one for each key and window. At most one of them exists.
    pub fn advertisement_ids_of_handle(
        &self,
        party_digest: [u8; 16],
        handle: AdvertisementId,
        now: UnixMs,
    ) -> impl Iterator<Item = AdvertisementId> {
        let window = handle::window_at(now);
        let windows = [window, window.saturating_sub(1)];
        let keys = [Some(&self.current), self.previous.as_ref()].into_iter().flatten();
        keys.flat_map(move |key| {
            windows.map(|window| key.advertisement_handle_cipher(party_digest, window).decipher(handle))
        })
    }

    /// Digest of a searching party: the caller, the users in order and the size of each party. A search token is valid for
    /// this party only. The digest depends on no key, so it survives a key rotation.
    pub fn searching_party_digest(caller: Option<UserKey>, users: &[UserKey], party_sizes: &[u8]) -> [u8; 16] {
        let users: Vec<u8> = users.iter().flat_map(|user| *user.as_bytes()).collect();
        ZERO_HMAC_KEY.digest(DigestPurpose::Party, &[&encode_optional_caller(caller), &users, party_sizes])
    }

    /// Digest of the caller and of what a request asks for. It depends on no key, so it survives a key rotation.
    pub fn request_digest(caller: Option<UserKey>, asked_values: &[u8]) -> [u8; 16] {
        ZERO_HMAC_KEY.digest(DigestPurpose::Request, &[&encode_optional_caller(caller), asked_values])
    }
}

impl HmacKey {
    fn new(secret: [u8; SIGNING_KEY_BYTES]) -> Self {
        let mut key = Self { key_id: [0; 4], hmac: new_hmac(&secret) };
        let digest = key.digest(DigestPurpose::KeyId, &[]);
        key.key_id.copy_from_slice(&digest[..4]);
        key
    }

    /// Cipher of the handles of a party in a window, with a key that follows from this one.
    fn advertisement_handle_cipher(&self, party_digest: [u8; 16], window: u64) -> AdvertisementHandleCipher {
        let key = self.digest(DigestPurpose::HandleKey, &[&party_digest, &window.to_be_bytes()]);
        AdvertisementHandleCipher(BlockCipher::new(key))
    }

    /// The first 16 bytes of HMAC-SHA256 over purpose and parts. Each part is preceded by its length, so that different
    /// lists of parts never give the same bytes.
    fn digest(&self, purpose: DigestPurpose, parts: &[&[u8]]) -> [u8; TRUNCATED_MAC_BYTES] {
        let mut mac = self.hmac.clone();
        mac.update(&[purpose as u8]);
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let full_digest: [u8; 32] = mac.finalize().into_bytes().into();
        std::array::from_fn(|index| full_digest[index])
    }
}

#[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
fn new_hmac(secret: &[u8; SIGNING_KEY_BYTES]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC accepts keys of any length")
}

#[cfg(test)]
mod tests;

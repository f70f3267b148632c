//! Owners of advertisements and reservations, and how many an owner may have.
//!
//! An owner is a digest of a caller's identity. Callers without an identity own nothing, and rows of version 0.2.0 have no
//! owner: they are not counted.

use sha2::{Digest, Sha256};

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

/// Bytes of an [`OwnerKey`] that identify the account; the others identify one of its clients.
const ACCOUNT_BYTES: usize = 12;

/// Owner of an advertisement or a reservation: 12 bytes of a digest of the account and the purpose, and 4 bytes of a
/// digest of the client, zero where an account has one client. The keys of one account are adjacent in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerKey([u8; 16]);

impl OwnerKey {
    /// Owner of the advertisements of one kind. `client` names one client of an account that may have several.
    pub fn of_advertiser(account: UserKey, kind: AdvertisementKind, client: Option<UserKey>) -> Self {
        let purpose = match kind {
            AdvertisementKind::Session => 1,
            AdvertisementKind::GameServer => 2,
        };
        Self::from_parts(purpose, account, client)
    }

    /// Owner of reservations.
    pub fn of_reserver(account: UserKey, client: Option<UserKey>) -> Self {
        Self::from_parts(3, account, client)
    }

    /// Wraps 16 bytes; every value is valid.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// First and last key of the account.
    pub fn account_range(self) -> (Self, Self) {
        let (mut first, mut last) = (self, self);
        first.0[ACCOUNT_BYTES..].fill(0);
        last.0[ACCOUNT_BYTES..].fill(u8::MAX);
        (first, last)
    }

    fn from_parts(purpose: u8, account: UserKey, client: Option<UserKey>) -> Self {
        let digest = Sha256::new_with_prefix([purpose]).chain_update(account.as_bytes()).finalize();
        let mut key = [0; 16];
        key[..ACCOUNT_BYTES].copy_from_slice(&digest[..ACCOUNT_BYTES]);
        if let Some(client) = client {
            key[ACCOUNT_BYTES..].copy_from_slice(&client.as_bytes()[..16 - ACCOUNT_BYTES]);
        }
        Self(key)
    }
}

/// Party that seats are reserved for: a digest of its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservedPartyKey([u8; 16]);

impl ReservedPartyKey {
    /// Key of the party of these users, sorted.
    pub fn from_party_users(users: &[UserKey]) -> Self {
        let digest = users.iter().fold(Sha256::new(), |digest, user| digest.chain_update(user.as_bytes())).finalize();
        Self(std::array::from_fn(|at| digest[at]))
    }

    /// Wraps 16 bytes; every value is valid.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Keys that lead to a user in reservations.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct UserTraces {
    pub(in crate::store) user: UserKey,
    /// First and last owner key of reservations that the user made.
    pub(in crate::store) reserver_range: (OwnerKey, OwnerKey),
    /// Party of the user alone.
    pub(in crate::store) solo_party: ReservedPartyKey,
}

impl UserTraces {
    pub(in crate::store) fn of_user(user: UserKey) -> Self {
        let reserver_range = OwnerKey::of_reserver(user, None).account_range();
        Self { user, reserver_range, solo_party: ReservedPartyKey::from_party_users(&[user]) }
    }

    /// Whether the key is one of the user's clients as an owner of reservations.
    pub(in crate::store) fn includes_reserver(&self, owner: OwnerKey) -> bool {
        (self.reserver_range.0..=self.reserver_range.1).contains(&owner)
    }
}

/// Maximum numbers of what a client and its account may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPerClientAndAccount {
    /// Of one client, at least 1.
    pub per_client: u32,
    /// Of all clients of the account, at least `per_client`.
    pub per_account: u32,
}

/// Owner of a new advertisement, and what happens if it has too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertOwner {
    /// Owner.
    pub key: OwnerKey,
    /// Limit that applies.
    pub limit: AdvertLimitPolicy,
    /// This server does not know the advertisement yet. A hint: it selects the statements, never the outcome.
    pub is_new_advert: bool,
}

/// Limit on the live advertisements of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdvertLimitPolicy {
    /// A new one takes the place of the oldest. They get tombstones.
    Replace {
        /// Maximum numbers.
        limit: LimitPerClientAndAccount,
        /// End of the tombstones.
        tombstone_until: UnixMs,
        /// The write creates an advertisement. An update of one that no longer exists does not replace others.
        is_create: bool,
    },
    /// A new one is refused.
    Refuse {
        /// Maximum number.
        max: u32,
    },
}

/// Owner of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationOwner {
    /// Client that made it.
    pub client: OwnerKey,
    /// Party that it is for.
    pub party: ReservedPartyKey,
}

/// Limit on the live reservations of a client. A new one takes the place of the oldest, and of that of the same party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationLimit {
    /// Maximum numbers.
    pub limit: LimitPerClientAndAccount,
    /// When the replaced ones may be purged.
    pub replaced_purge_at: UnixMs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_keys_of_one_account_are_adjacent_and_differ_by_purpose() {
        let (account, other) = (UserKey::from_name("a"), UserKey::from_name("b"));
        let client = |name: &str| Some(UserKey::of_client_of_user(account, UserKey::from_name(name)));
        let session = |client| OwnerKey::of_advertiser(account, AdvertisementKind::Session, client);
        let (first, last) = session(None).account_range();
        for key in [session(None), session(client("pc")), session(client("phone"))] {
            assert!((first..=last).contains(&key), "{key:?}");
            assert_eq!(key.account_range(), (first, last));
        }
        assert_ne!(session(client("pc")), session(client("phone")));
        for key in [
            OwnerKey::of_advertiser(account, AdvertisementKind::GameServer, None),
            OwnerKey::of_reserver(account, None),
            OwnerKey::of_advertiser(other, AdvertisementKind::Session, None),
        ] {
            assert!(!(first..=last).contains(&key), "{key:?}");
        }
    }
}

//! Public keys of users: what answers show in place of the digest of an account, under a secret of the deployment.
//!
//! The digest of an account in the store has no secret: who guesses the account finds its digest. A public key needs the
//! secret, and differs for each purpose, so that one place does not tell who a player is in another. The secret stays when
//! token keys rotate.
//!
//! A public key is the digest, encrypted with AES-128, so that the server can read its own keys again. The key of a player in
//! one match is an HMAC, which cannot be read back.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::auth::block_cipher::{BLOCK_BYTES, BlockCipher};
use crate::auth::token::SIGNING_KEY_BYTES;
use crate::domain::id::{MatchId, SetId, SiloId, UserKey};

/// First byte of the HMAC input for the key of a player in a match; no [`KeyPurpose`] has it.
const MATCH_PLAYER_TAG: u8 = 0x80;
/// First byte of the HMAC input for the id of the secret.
const SECRET_FINGERPRINT_TAG: u8 = 0x81;
/// First byte of the HMAC input for the key of a connected user.
const CONNECTED_USER_TAG: u8 = 0x82;

/// Place in which a public key is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPurpose {
    /// Leaderboards and ratings.
    Leaderboard = 1,
    /// Credentials for game servers.
    Credential = 2,
    /// Answers to operators.
    Operator = 3,
    /// The file of erasures.
    ErasureLog = 4,
}

/// Secret of the public keys. All servers of a deployment share it.
#[derive(Clone)]
pub struct PublicUserKeySecret {
    /// HMAC state after absorbing the secret.
    hmac: Hmac<Sha256>,
    /// Cipher of each purpose, in the order of [`KeyPurpose`].
    ciphers: [BlockCipher; 4],
}

impl fmt::Debug for PublicUserKeySecret {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicUserKeySecret").finish_non_exhaustive()
    }
}

impl PublicUserKeySecret {
    /// Keys under `secret`.
    #[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
    pub fn new(secret: [u8; SIGNING_KEY_BYTES]) -> Self {
        let hmac = Hmac::new_from_slice(&secret).expect("HMAC accepts keys of any length");
        let purposes = [KeyPurpose::Leaderboard, KeyPurpose::Credential, KeyPurpose::Operator, KeyPurpose::ErasureLog];
        let ciphers = purposes.map(|purpose| BlockCipher::new(first_block(digest(&hmac, &[&[purpose as u8]]))));
        Self { hmac, ciphers }
    }

    /// Public key of a user for one purpose.
    pub fn public_key(&self, purpose: KeyPurpose, user: UserKey) -> UserKey {
        UserKey::from_bytes(self.cipher(purpose).encrypt(*user.as_bytes()))
    }

    /// User with this public key. Each key of a purpose belongs to one user, who may not exist.
    pub fn user_of(&self, purpose: KeyPurpose, public_key: UserKey) -> UserKey {
        UserKey::from_bytes(self.cipher(purpose).decrypt(*public_key.as_bytes()))
    }

    /// Key of a player within one match: it reveals no account and differs in every match.
    pub fn match_player_key(&self, match_id: MatchId, user: UserKey) -> UserKey {
        let digest = digest(&self.hmac, &[&[MATCH_PLAYER_TAG], match_id.as_bytes(), user.as_bytes()]);
        UserKey::from_bytes(first_block(digest))
    }

    /// Key of a connected user in a queue, for the servers of a deployment. Of 100,000 users, two have the same key with a probability
    /// below one in a billion.
    pub fn connected_user_digest_in_queue(&self, set_id: SetId, silo: SiloId, user: UserKey) -> i64 {
        let (set_id, silo) = (set_id.0.to_be_bytes(), silo.0.to_be_bytes());
        let digest = digest(&self.hmac, &[&[CONNECTED_USER_TAG], &set_id, &silo, user.as_bytes()]);
        i64::from_be_bytes(std::array::from_fn(|at| digest[at]))
    }

    /// Number that is the same for the same secret, and does not reveal it.
    pub fn secret_fingerprint(&self) -> i64 {
        let digest = digest(&self.hmac, &[&[SECRET_FINGERPRINT_TAG]]);
        i64::from_be_bytes(std::array::from_fn(|at| digest[at]))
    }

    fn cipher(&self, purpose: KeyPurpose) -> &BlockCipher {
        let [leaderboard, credential, operator, erasure_log] = &self.ciphers;
        match purpose {
            KeyPurpose::Leaderboard => leaderboard,
            KeyPurpose::Credential => credential,
            KeyPurpose::Operator => operator,
            KeyPurpose::ErasureLog => erasure_log,
        }
    }
}

/// HMAC of parts whose lengths their first byte determines.
fn digest(hmac: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = hmac.clone();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn first_block(digest: [u8; 32]) -> [u8; BLOCK_BYTES] {
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// SEC-9: a public key depends on the secret and on the purpose, and only the secret leads back.
    #[test]
    fn public_user_keys_differ_by_secret_and_purpose_and_can_be_read_back() {
        let (keys, others) =
            (PublicUserKeySecret::new([1; SIGNING_KEY_BYTES]), PublicUserKeySecret::new([2; SIGNING_KEY_BYTES]));
        let purposes = [KeyPurpose::Leaderboard, KeyPurpose::Credential, KeyPurpose::Operator, KeyPurpose::ErasureLog];
        let mut seen = BTreeSet::new();
        for number in 0..100 {
            let user = UserKey::from_name(&format!("user-{number}"));
            seen.insert(user);
            for purpose in purposes {
                let public_key = keys.public_key(purpose, user);
                assert_eq!(keys.user_of(purpose, public_key), user);
                assert_ne!(others.user_of(purpose, public_key), user);
                seen.extend([public_key, others.public_key(purpose, user)]);
            }
            let of_match = |n: u8| keys.match_player_key(MatchId::from_bytes([n; 16]), user);
            assert_eq!(of_match(1), of_match(1));
            seen.extend([of_match(1), of_match(2)]);
        }
        let connected = |keys: &PublicUserKeySecret, set, silo, name| {
            keys.connected_user_digest_in_queue(SetId(set), SiloId(silo), UserKey::from_name(name))
        };
        let distinct: BTreeSet<i64> =
            [(&keys, 1, 1, "ann"), (&keys, 2, 1, "ann"), (&keys, 1, 2, "ann"), (&keys, 1, 1, "bob")]
                .into_iter()
                .chain([(&others, 1, 1, "ann")])
                .map(|(keys, set, silo, name)| connected(keys, set, silo, name))
                .collect();
        assert_eq!(distinct.len(), 5);
        assert_eq!(
            connected(&keys, 1, 1, "ann"),
            connected(&PublicUserKeySecret::new([1; SIGNING_KEY_BYTES]), 1, 1, "ann")
        );
        assert_eq!(seen.len(), 100 * (1 + 2 * purposes.len() + 2), "no two keys are equal");
        assert_ne!(keys.secret_fingerprint(), others.secret_fingerprint());
        assert!(!format!("{keys:?}").contains("01"), "{keys:?}");
    }
}

//! Cache of verified tokens and certificates, so that a proof sent with every call is verified once a minute.
//!
//! A cache belongs to the keys that verified its entries; new keys start with an empty cache.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest as _, Sha256};

use crate::auth::identity::Identity;
use crate::domain::time::UnixMs;

/// TTL of a cached proof, milliseconds.
const PROOF_CACHE_TTL_MS: u64 = 60_000;
/// Maximum number of cached proofs.
const CACHED_PROOFS_MAX: usize = 65_536;
/// Number of shards, each with its own lock, so that calls rarely contend.
const SHARDS: usize = 16;
/// Maximum number of proofs in one generation of a shard.
const GENERATION_PROOFS_MAX: usize = CACHED_PROOFS_MAX / SHARDS / 2;

/// SHA-256 digest of a proof: its key in the cache.
pub(super) type CredentialDigest = [u8; 32];

/// Digest of a proof; `kind` separates tokens from certificates.
pub(super) fn credential_digest(kind: u8, proof: &[u8]) -> CredentialDigest {
    Sha256::new_with_prefix([kind]).chain_update(proof).finalize().into()
}

/// Cached proofs in shards.
#[derive(Debug, Default)]
pub(super) struct VerifiedCredentialCache {
    shards: [RwLock<CacheGenerations>; SHARDS],
}

/// Two-generation eviction: a full young generation becomes the old one, and the former old one is dropped. No entry has
/// to be searched for eviction.
#[derive(Debug, Default)]
struct CacheGenerations {
    young: HashMap<CredentialDigest, CachedProof>,
    old: HashMap<CredentialDigest, CachedProof>,
}

#[derive(Clone, Debug)]
struct CachedProof {
    identity: Arc<Identity>,
    expires_at: UnixMs,
}

impl VerifiedCredentialCache {
    /// Identity of a cached proof; `None` if absent or expired.
    pub(super) fn get(&self, digest: &CredentialDigest, now: UnixMs) -> Option<Arc<Identity>> {
        let shard = self.shard(digest).read().unwrap_or_else(PoisonError::into_inner);
        let cached = shard.young.get(digest).or_else(|| shard.old.get(digest))?;
        (now < cached.expires_at).then(|| Arc::clone(&cached.identity))
    }

    /// Caches a proof for `PROOF_CACHE_TTL_MS`, but never beyond the expiry of the proof itself.
    pub(super) fn insert(&self, digest: CredentialDigest, identity: Arc<Identity>, now: UnixMs) {
        let ttl_end = now.plus_ms(PROOF_CACHE_TTL_MS);
        let expires_at = identity.accepted_until().map_or(ttl_end, |accepted_until| accepted_until.min(ttl_end));
        let mut shard = self.shard(&digest).write().unwrap_or_else(PoisonError::into_inner);
        if shard.young.len() >= GENERATION_PROOFS_MAX {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(digest, CachedProof { identity, expires_at });
    }

    fn shard(&self, digest: &CredentialDigest) -> &RwLock<CacheGenerations> {
        &self.shards[usize::from(digest[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::identity::{CLOCK_LEEWAY_MS, Role};

    fn identity(expires_at: Option<UnixMs>) -> Arc<Identity> {
        Arc::new(Identity::new("a", "ana", Role::Client, &[], expires_at))
    }

    /// SEC-4: a cached proof expires after a minute, and never later than the proof itself.
    #[test]
    fn proof_cache_entry_expires_after_its_ttl_or_with_its_proof() {
        let now = UnixMs(1_000_000);
        let check = |expires_at: Option<UnixMs>, ttl_ms: u64| {
            let (cache, digest) = (VerifiedCredentialCache::default(), credential_digest(0, b"proof"));
            cache.insert(digest, identity(expires_at), now);
            assert!(cache.get(&digest, now.plus_ms(ttl_ms - 1)).is_some(), "{expires_at:?}");
            assert!(cache.get(&digest, now.plus_ms(ttl_ms)).is_none(), "{expires_at:?}");
        };
        check(None, PROOF_CACHE_TTL_MS);
        check(Some(now.plus_ms(3_600_000)), PROOF_CACHE_TTL_MS);
        check(Some(now.plus_ms(5)), CLOCK_LEEWAY_MS + 5);
    }

    /// SEC-11: the cache never exceeds its maximum size, and the latest proofs are in it.
    #[test]
    fn proof_cache_size_is_bounded() {
        let (cache, now) = (VerifiedCredentialCache::default(), UnixMs(5));
        for number in 0..3 * CACHED_PROOFS_MAX as u64 {
            let digest = credential_digest(0, &number.to_be_bytes());
            cache.insert(digest, identity(None), now);
            assert!(cache.get(&digest, now).is_some());
        }
        let proof_count = |shard: &RwLock<CacheGenerations>| {
            let shard = shard.read().unwrap();
            shard.young.len() + shard.old.len()
        };
        assert!(cache.shards.iter().map(proof_count).sum::<usize>() <= CACHED_PROOFS_MAX);
    }

    #[test]
    fn proof_digest_depends_on_the_kind() {
        assert_ne!(credential_digest(0, b"proof"), credential_digest(1, b"proof"));
    }
}

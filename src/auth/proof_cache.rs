//! Proofs that were verified a moment ago, so that one that comes with every call is verified once a minute.
//!
//! What is kept belongs to the keys that it was verified with: new keys begin with nothing.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest as _, Sha256};

use crate::auth::identity::Identity;
use crate::domain::time::UnixMs;

/// How long a proof is believed without another look, milliseconds.
const PROOF_CACHE_TTL_MS: u64 = 60_000;
/// Proofs that are kept at most.
const CACHED_PROOFS_MAX: usize = 65_536;
/// Parts that are locked on their own, so that calls seldom wait for each other.
const SHARDS: usize = 16;
/// Proofs in one generation of a shard.
const GENERATION_PROOFS_MAX: usize = CACHED_PROOFS_MAX / SHARDS / 2;

/// Names a proof by all of its bytes.
pub(super) type ProofDigest = [u8; 32];

/// Names a proof: `kind` keeps tokens and certificates apart.
pub(super) fn proof_digest(kind: u8, proof: &[u8]) -> ProofDigest {
    Sha256::new_with_prefix([kind]).chain_update(proof).finalize().into()
}

/// The proofs.
#[derive(Debug, Default)]
pub(super) struct ProofCache {
    shards: [RwLock<CacheGenerations>; SHARDS],
}

/// When the young are too many they become the old, and the old are forgotten: nothing is searched for what may go.
#[derive(Debug, Default)]
struct CacheGenerations {
    young: HashMap<ProofDigest, CachedProof>,
    old: HashMap<ProofDigest, CachedProof>,
}

#[derive(Clone, Debug)]
struct CachedProof {
    identity: Arc<Identity>,
    expires_at: UnixMs,
}

impl ProofCache {
    /// Whom a proof of this name was about, if it is still to be believed.
    pub(super) fn get(&self, name: &ProofDigest, now: UnixMs) -> Option<Arc<Identity>> {
        let shard = self.shard(name).read().unwrap_or_else(PoisonError::into_inner);
        let kept = shard.young.get(name).or_else(|| shard.old.get(name))?;
        (now < kept.expires_at).then(|| Arc::clone(&kept.identity))
    }

    /// Remembers for a minute, and not beyond the end of the proof itself.
    pub(super) fn insert(&self, name: ProofDigest, identity: Arc<Identity>, now: UnixMs) {
        let end = now.plus_ms(PROOF_CACHE_TTL_MS);
        let until = identity.accepted_until().map_or(end, |last| last.min(end));
        let mut shard = self.shard(&name).write().unwrap_or_else(PoisonError::into_inner);
        if GENERATION_PROOFS_MAX <= shard.young.len() {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(name, CachedProof { identity, expires_at: until });
    }

    fn shard(&self, name: &ProofDigest) -> &RwLock<CacheGenerations> {
        &self.shards[usize::from(name[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::identity::{CLOCK_LEEWAY_MS, Role};

    fn identity(until: Option<UnixMs>) -> Arc<Identity> {
        Arc::new(Identity::new("a", "ana", Role::Client, &[], until))
    }

    /// SEC-4: what is kept lives for a minute, and never longer than what it was made of.
    #[test]
    fn proof_cache_entry_expires_after_its_ttl_or_with_its_proof() {
        let now = UnixMs(1_000_000);
        let check = |until: Option<UnixMs>, lives_ms: u64| {
            let (verified, name) = (ProofCache::default(), proof_digest(0, b"proof"));
            verified.insert(name, identity(until), now);
            assert!(verified.get(&name, now.plus_ms(lives_ms - 1)).is_some(), "{until:?}");
            assert!(verified.get(&name, now.plus_ms(lives_ms)).is_none(), "{until:?}");
        };
        check(None, PROOF_CACHE_TTL_MS);
        check(Some(now.plus_ms(3_600_000)), PROOF_CACHE_TTL_MS);
        check(Some(now.plus_ms(5)), CLOCK_LEEWAY_MS + 5);
    }

    /// SEC-11: however many there are, memory holds so many and no more, and the latest are among them.
    #[test]
    fn proof_cache_size_is_bounded() {
        let (verified, now) = (ProofCache::default(), UnixMs(5));
        for number in 0..3 * CACHED_PROOFS_MAX as u64 {
            let name = proof_digest(0, &number.to_be_bytes());
            verified.insert(name, identity(None), now);
            assert!(verified.get(&name, now).is_some());
        }
        let held = |shard: &RwLock<CacheGenerations>| {
            let shard = shard.read().unwrap();
            shard.young.len() + shard.old.len()
        };
        assert!(verified.shards.iter().map(held).sum::<usize>() <= CACHED_PROOFS_MAX);
    }

    #[test]
    fn proof_digest_depends_on_the_kind() {
        assert_ne!(proof_digest(0, b"proof"), proof_digest(1, b"proof"));
    }
}

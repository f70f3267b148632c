//! Proofs that were verified a moment ago, so that one that comes with every call is verified once a minute.
//!
//! What is kept belongs to the keys that it was verified with: new keys begin with nothing.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest as _, Sha256};

use crate::auth::identity::Identity;
use crate::domain::time::UnixMs;

/// How long a proof is believed without another look, milliseconds.
const KEPT_MS: u64 = 60_000;
/// Proofs that are kept at most.
const VERIFIED_MAX: usize = 65_536;
/// Parts that are locked on their own, so that calls seldom wait for each other.
const SHARDS: usize = 16;
/// Proofs in one generation of a shard.
const GENERATION_MAX: usize = VERIFIED_MAX / SHARDS / 2;

/// Names a proof by all of its bytes.
pub(super) type ProofDigest = [u8; 32];

/// Names a proof: `kind` keeps tokens and certificates apart.
pub(super) fn digest(kind: u8, proof: &[u8]) -> ProofDigest {
    Sha256::new_with_prefix([kind]).chain_update(proof).finalize().into()
}

/// The proofs.
#[derive(Debug, Default)]
pub(super) struct Verified {
    shards: [RwLock<Generations>; SHARDS],
}

/// When the young are too many they become the old, and the old are forgotten: nothing is searched for what may go.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ProofDigest, Kept>,
    old: HashMap<ProofDigest, Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    identity: Arc<Identity>,
    until: UnixMs,
}

impl Verified {
    /// Whom a proof of this name was about, if it is still to be believed.
    pub(super) fn get(&self, name: &ProofDigest, now: UnixMs) -> Option<Arc<Identity>> {
        let shard = self.shard(name).read().unwrap_or_else(PoisonError::into_inner);
        let kept = shard.young.get(name).or_else(|| shard.old.get(name))?;
        (now < kept.until).then(|| Arc::clone(&kept.identity))
    }

    /// Remembers for a minute, and not beyond the end of the proof itself.
    pub(super) fn put(&self, name: ProofDigest, identity: Arc<Identity>, now: UnixMs) {
        let end = now.plus_ms(KEPT_MS);
        let until = identity.good_until().map_or(end, |last| last.min(end));
        let mut shard = self.shard(&name).write().unwrap_or_else(PoisonError::into_inner);
        if GENERATION_MAX <= shard.young.len() {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(name, Kept { identity, until });
    }

    fn shard(&self, name: &ProofDigest) -> &RwLock<Generations> {
        &self.shards[usize::from(name[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::identity::{LEEWAY_MS, Role};

    fn identity(until: Option<UnixMs>) -> Arc<Identity> {
        Arc::new(Identity::new("a", "ana", Role::Client, &[], until))
    }

    /// SEC-4: what is kept lives for a minute, and never longer than what it was made of.
    #[test]
    fn nothing_is_believed_beyond_its_end() {
        let now = UnixMs(1_000_000);
        let check = |until: Option<UnixMs>, lives_ms: u64| {
            let (verified, name) = (Verified::default(), digest(0, b"proof"));
            verified.put(name, identity(until), now);
            assert!(verified.get(&name, now.plus_ms(lives_ms - 1)).is_some(), "{until:?}");
            assert!(verified.get(&name, now.plus_ms(lives_ms)).is_none(), "{until:?}");
        };
        check(None, KEPT_MS);
        check(Some(now.plus_ms(3_600_000)), KEPT_MS);
        check(Some(now.plus_ms(5)), LEEWAY_MS + 5);
    }

    /// SEC-11: however many there are, memory holds so many and no more, and the latest are among them.
    #[test]
    fn the_number_is_bounded() {
        let (verified, now) = (Verified::default(), UnixMs(5));
        for number in 0..3 * VERIFIED_MAX as u64 {
            let name = digest(0, &number.to_be_bytes());
            verified.put(name, identity(None), now);
            assert!(verified.get(&name, now).is_some());
        }
        let held = |shard: &RwLock<Generations>| {
            let shard = shard.read().unwrap();
            shard.young.len() + shard.old.len()
        };
        assert!(verified.shards.iter().map(held).sum::<usize>() <= VERIFIED_MAX);
    }

    #[test]
    fn kinds_of_proof_have_names_of_their_own() {
        assert_ne!(digest(0, b"proof"), digest(1, b"proof"));
    }
}

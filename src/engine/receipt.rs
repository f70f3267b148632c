//! What an update is answered with: gathered from a record while its shelf is held, put together afterwards.

use crate::auth::token::AdvertisementClaim;
use crate::domain::id::RulesetHash;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::answer;
use crate::engine::command::{ReservationAnswer, UpdateAnswer};
use crate::engine::core::Core;
use crate::engine::shelf::Record;

/// A token that says `claim` and is signed with the current key, so that it need not be signed again while the claim
/// stays as it is.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    pub(super) claim: AdvertisementClaim,
    pub(super) token: Vec<u8>,
}

/// What an answer needs of a record.
#[derive(Debug)]
pub(super) struct Seen {
    claim: AdvertisementClaim,
    hash: RulesetHash,
    expires: UnixMs,
    /// What the host is told of its reservations.
    pub(super) reservations: Vec<ReservationAnswer>,
}

impl Seen {
    /// Looks at a record at `now`.
    pub(super) fn of(record: &Record, now: UnixMs) -> Self {
        let advertisement = &record.advertisement;
        let claim = AdvertisementClaim {
            id: advertisement.id,
            set_id: advertisement.set_id,
            kind: advertisement.kind,
            subject: advertisement.subject,
            since: advertisement.since,
        };
        let reservations = record.holding(now).map(|it| answer::reservation(it, Vec::new(), now)).collect();
        Self { claim, hash: advertisement.hash, expires: record.expires, reservations }
    }
}

impl Core {
    /// The answer about a record as it was seen. The caller's own token goes back to it if it still says the truth.
    pub(super) fn update_answer(&self, seen: Seen, proof: Option<Proof>, now: UnixMs) -> UpdateAnswer {
        let ruleset = self.ruleset(seen.claim.set_id, Some(seen.hash)).ok();
        self.update_answer_by(ruleset.as_deref(), seen, proof, now)
    }

    /// The same, where the record's ruleset is at hand.
    pub(super) fn update_answer_by(
        &self,
        ruleset: Option<&Ruleset>,
        seen: Seen,
        proof: Option<Proof>,
        now: UnixMs,
    ) -> UpdateAnswer {
        let claim = seen.claim;
        let token = match proof {
            Some(proof) if proof.claim == claim => proof.token,
            _ => self.signer.seal(&claim),
        };
        let advertised_ms = now.since(claim.since);
        UpdateAnswer {
            id: claim.id,
            token,
            created: false,
            expires_in_ms: u32::try_from(seen.expires.since(now)).unwrap_or(u32::MAX),
            hash: seen.hash,
            next_expansion_in_ms: ruleset.and_then(|ruleset| ruleset.next_expansion_in_ms(advertised_ms)),
            reservations: seen.reservations,
            pending: false,
            ignored: Vec::new(),
        }
    }
}

//! What an update is answered with: gathered from a record while its shelf is held, put together afterwards.

use crate::auth::token::AdvertisementClaim;
use crate::domain::id::RulesetHash;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::reservation_view;
use crate::engine::command::{ReservationView, UpdateAdvertAnswer};
use crate::engine::core::Core;

/// A token that says `claim` and is signed with the current key, so that it need not be signed again while the claim
/// stays as it is.
#[derive(Clone, Debug)]
pub(in crate::engine) struct SignedToken {
    pub(in crate::engine) claim: AdvertisementClaim,
    pub(in crate::engine) token: Vec<u8>,
}

/// What an answer needs of a record.
#[derive(Debug)]
pub(in crate::engine) struct UpdateSnapshot {
    claim: AdvertisementClaim,
    ruleset_hash: RulesetHash,
    expires_at: UnixMs,
    /// What the host is told of its reservations.
    pub(in crate::engine) reservations: Vec<ReservationView>,
}

impl UpdateSnapshot {
    /// Looks at a record at `now`.
    pub(in crate::engine) fn from_record(record: &AdvertRecord, now: UnixMs) -> Self {
        let advertisement = &record.advertisement;
        let claim = AdvertisementClaim {
            advertisement_id: advertisement.id,
            set_id: advertisement.set_id,
            kind: advertisement.kind,
            subject: advertisement.publisher,
            advertised_since: advertisement.advertised_since,
        };
        let reservations =
            record.valid_reservations(now).map(|it| reservation_view::reservation_view(it, Vec::new(), now)).collect();
        Self { claim, ruleset_hash: advertisement.ruleset_hash, expires_at: record.expires_at, reservations }
    }
}

impl Core {
    /// The answer about a record as it was seen. The caller's own token goes back to it if it still says the truth.
    pub(in crate::engine) fn build_update_answer(
        &self,
        seen: UpdateSnapshot,
        proof: Option<SignedToken>,
        now: UnixMs,
    ) -> UpdateAdvertAnswer {
        let ruleset = self.ruleset(seen.claim.set_id, Some(seen.ruleset_hash)).ok();
        self.build_update_answer_with_ruleset(ruleset.as_deref(), seen, proof, now)
    }

    /// The same, where the record's ruleset is at hand.
    pub(in crate::engine) fn build_update_answer_with_ruleset(
        &self,
        ruleset: Option<&Ruleset>,
        seen: UpdateSnapshot,
        proof: Option<SignedToken>,
        now: UnixMs,
    ) -> UpdateAdvertAnswer {
        let claim = seen.claim;
        let token = match proof {
            Some(proof) if proof.claim == claim => proof.token,
            _ => self.token_signer.sign(&claim),
        };
        let advertised_ms = now.ms_since(claim.advertised_since);
        UpdateAdvertAnswer {
            id: claim.advertisement_id,
            advertisement_token: token,
            created: false,
            expires_in_ms: u32::try_from(seen.expires_at.ms_since(now)).unwrap_or(u32::MAX),
            ruleset_hash: seen.ruleset_hash,
            next_expansion_in_ms: ruleset.and_then(|ruleset| ruleset.ms_until_next_expansion(advertised_ms)),
            reservations: seen.reservations,
            not_yet_durable: false,
            ignored_fields: Vec::new(),
        }
    }
}

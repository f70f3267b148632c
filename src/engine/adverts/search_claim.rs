//! Search tokens: start time, ruleset and party of a search that continues over several calls.

use std::sync::Arc;

use crate::auth::token::{HmacTokenSigner, MeasuredSearchClaim, SearchClaim, SearchMeasurements};
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::checked_session::CheckedSession;
use crate::engine::common::Common;
use crate::engine::error::{EngineError, field_error};

/// Ruleset that a search used: that of `hash`, else that named in the search token, else the current one.
pub(crate) fn ruleset_of_search(
    common: &Common,
    set_id: SetId,
    hash: Option<RulesetHash>,
    token: &[u8],
) -> Result<Arc<Ruleset>, EngineError> {
    let named_by_token = || verify_search_token(common, token).filter(|claim| claim.search.set_id == set_id);
    common.current_or_cached_ruleset(set_id, hash.or_else(|| named_by_token().map(|claim| claim.search.ruleset_hash)))
}

/// Verifies a search token, with or without measurements; `None` for any other bytes.
pub(crate) fn verify_search_token(common: &Common, token: &[u8]) -> Option<MeasuredSearchClaim> {
    let without = |search| MeasuredSearchClaim { search, measured: SearchMeasurements::default() };
    let signer = &common.token_signer;
    signer.verify::<SearchClaim>(token).map(without).or_else(|| signer.verify(token))
}

/// Search token of a claim; shorter without measurements.
pub(crate) fn sign_search_token(common: &Common, claim: &MeasuredSearchClaim) -> Vec<u8> {
    let has_measurements = claim.measured != SearchMeasurements::default();
    if has_measurements { common.token_signer.sign(claim) } else { common.token_signer.sign(&claim.search) }
}

/// Claim for the next search token: the token's, refreshed, or a new one if the token is empty or idle too long. A new one has no
/// measurements.
pub(crate) fn renew_or_start_search_claim(
    common: &Common,
    ruleset: &Ruleset,
    checked: &CheckedSession,
    token: &[u8],
    now: UnixMs,
) -> Result<MeasuredSearchClaim, EngineError> {
    let party_digest =
        HmacTokenSigner::searching_party_digest(checked.subject, &checked.users, &checked.session.party_sizes);
    let Ruleset { set_id, hash, .. } = *ruleset;
    let silo = checked.session.silo;
    let search = SearchClaim { set_id, ruleset_hash: hash, silo, party_digest, started_at: now, last_issued_at: now };
    let new_claim = MeasuredSearchClaim { search, measured: SearchMeasurements::default() };
    if token.is_empty() {
        return Ok(new_claim);
    }
    let Some(MeasuredSearchClaim { search: claim, measured }) = verify_search_token(common, token) else {
        return Err(field_error("search_token", "is not valid on this server; omit it to start a new search"));
    };
    if (claim.set_id, claim.silo, claim.party_digest) != (set_id, silo, party_digest) {
        let problem = "belongs to another set, silo or party; omit it to start a new search";
        return Err(field_error("search_token", problem));
    }
    if now.ms_since(claim.last_issued_at) > common.settings.search_token_idle_timeout_ms {
        return Ok(new_claim);
    }
    Ok(MeasuredSearchClaim { search: SearchClaim { ruleset_hash: hash, last_issued_at: now, ..claim }, measured })
}

//! Party consent: a player's game acts for its own user, and for other players who granted consent.

use crate::auth::token::ConsentClaim;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::UserKey;
use crate::domain::ruleset::{PartyConsentPolicy, Ruleset};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::command::{Caller, GrantConsentAnswer, PartyConsents};
use crate::engine::common::Common;
use crate::engine::error::{EngineError, field_error};

/// Consent TTL: long enough to find a match, short enough not to apply to the next one.
const CONSENT_TTL_MS: u32 = 5 * 60 * 1000;

/// Issues a consent token that lets `leader` include the caller in a party. Anonymous callers get an empty token.
pub(crate) fn grant_consent(
    common: &Common,
    caller: &Caller,
    leader: UserKey,
) -> Result<GrantConsentAnswer, EngineError> {
    let Some(member) = caller.user else {
        return match caller.subject {
            None => Ok(GrantConsentAnswer { consent_token: Vec::new(), expires_in_ms: 0 }),
            Some(_) => Err(EngineError::ClientRoleRequired),
        };
    };
    let expires_at = common.clock.now().plus_ms(u64::from(CONSENT_TTL_MS));
    let consent_token = common.token_signer.sign(&ConsentClaim { member, leader, expires_at });
    Ok(GrantConsentAnswer { consent_token, expires_in_ms: CONSENT_TTL_MS })
}

/// Checks a party that searches, reserves or creates: it contains the caller, and the other players consented.
pub(crate) fn check_party_consents(
    common: &Common,
    caller: &Caller,
    ruleset: &Ruleset,
    session: &Session,
    consents: &PartyConsents,
    now: UnixMs,
) -> Result<(), EngineError> {
    let Some(leader) = caller.user else { return Ok(()) };
    if !session.players.iter().any(|player| player.user == leader) {
        let problem = "does not contain the caller; include the user of the caller's authentication token";
        return Err(field_error(consents.players_field_path, problem));
    }
    check_consent_tokens(common, leader, ruleset, session, consents, &[], now)
}

/// Checks an updated session: each player who is not in the advertisement yet gave consent. Calls `users_of_advert`
/// only if consent is required.
pub(crate) fn check_new_players_consents(
    common: &Common,
    caller: &Caller,
    ruleset: &Ruleset,
    session: &Session,
    consents: &PartyConsents,
    users_of_advert: impl FnOnce() -> Vec<UserKey>,
    now: UnixMs,
) -> Result<(), EngineError> {
    let Some(leader) = caller.user.filter(|_| ruleset.consent == PartyConsentPolicy::Required) else {
        return Ok(());
    };
    check_consent_tokens(common, leader, ruleset, session, consents, &users_of_advert(), now)
}

/// Checks the consent token of each player except the leader and the `exempt` users.
fn check_consent_tokens(
    common: &Common,
    leader: UserKey,
    ruleset: &Ruleset,
    session: &Session,
    consents: &PartyConsents,
    exempt: &[UserKey],
    now: UnixMs,
) -> Result<(), EngineError> {
    if ruleset.consent == PartyConsentPolicy::Assumed {
        return Ok(());
    }
    let mut problems = Vec::new();
    for (index, player) in session.players.iter().enumerate() {
        if player.user == leader || exempt.contains(&player.user) {
            continue;
        }
        let consent_token = consents.consent_tokens.get(index).map_or(&[][..], Vec::as_slice);
        let claim = common.token_signer.verify::<ConsentClaim>(consent_token);
        let problem = match claim {
            Some(claim) if (claim.member, claim.leader) == (player.user, leader) && now < claim.expires_at => {
                continue;
            }
            _ if consent_token.is_empty() => {
                "is required by ruleset `{ruleset}`; have this player call GrantConsent and send its token"
            }
            _ => "is expired or not this player's consent for the caller; have this player call GrantConsent again",
        };
        let path = format!("{}[{index}].consent_token", consents.players_field_path);
        problems.push(FieldProblem { path, message: problem.replace("{ruleset}", &ruleset.name) });
    }
    if problems.is_empty() { Ok(()) } else { Err(EngineError::InvalidFields(problems)) }
}

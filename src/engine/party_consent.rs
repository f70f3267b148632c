//! Party consent: a player's game acts for its own user, and for other players who granted consent.
//!
//! A consent is good once. The first ticket that is entered with it takes it, in the transaction that enters the ticket.
//! A search reveals and takes nothing, so it only checks the token; the first search whose reservation uses a consent takes
//! it, or the first advertisement.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::auth::token::{ConsentClaim, ConsentPurpose};
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::{ConsentId, UserKey};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::command::{Caller, GrantConsentAnswer, GrantConsentCommand, PartyConsents};
use crate::engine::common::Common;
use crate::engine::error::{EngineError, field_error};
use crate::engine::writer_inbox::{PendingAnswer, RETRY_AFTER_MS};
use crate::store::queues::{ConsentConsumer, GrantedConsent, QueueOutcome, QueueWrite};

/// Consent TTL: long enough to find a match, short enough not to apply to the next one.
const CONSENT_TTL_MS: u32 = 5 * 60 * 1000;

/// Consents of a party, checked for the caller. Empty where none is required.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckedConsents {
    /// Each with the path of the request field that it came from.
    consents: Vec<(String, GrantedConsent)>,
    /// Players who answer ready checks for themselves, sorted.
    pub(crate) users_acting_for_themselves: Vec<UserKey>,
}

impl CheckedConsents {
    /// The consents, for the store.
    pub(crate) fn granted_consents(&self) -> Vec<GrantedConsent> {
        self.consents.iter().map(|(_, consent)| *consent).collect()
    }

    /// Whether there is none to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.consents.is_empty()
    }

    /// Error for a consent that was revoked, or taken by something else.
    pub(crate) fn spent_error(&self, spent: ConsentId) -> EngineError {
        let path = self.consents.iter().find(|(_, consent)| consent.id == spent).map(|(path, _)| path.clone());
        field_error(path.unwrap_or_default(), "was used or revoked; have this player call GrantConsent again")
    }
}

/// Issues a consent token that lets a leader include the caller in a party. Anonymous callers get an empty token.
pub(crate) fn grant_consent(
    common: &Common,
    caller: &Caller,
    grant: &GrantConsentCommand,
) -> Result<GrantConsentAnswer, EngineError> {
    let Some(member) = caller.user else {
        return match caller.subject {
            None => Ok(GrantConsentAnswer { consent_token: Vec::new(), expires_in_ms: 0 }),
            Some(_) => Err(EngineError::ClientRoleRequired),
        };
    };
    let GrantConsentCommand { leader, set_id, purpose, may_leader_answer: may_answer } = *grant;
    let id = ConsentId::from_bytes(common.clock.random_bytes());
    let expires_at = common.clock.now().plus_ms(u64::from(CONSENT_TTL_MS));
    let claim = ConsentClaim { id, member, leader, set_id, purpose, may_answer, expires_at };
    Ok(GrantConsentAnswer { consent_token: common.token_signer.sign(&claim), expires_in_ms: CONSENT_TTL_MS })
}

/// Revokes a consent of the caller. The answer says whether something had taken it before.
pub(crate) fn revoke_consent(
    common: &Arc<Common>,
    caller: &Caller,
    consent_token: &[u8],
) -> Result<PendingAnswer<bool>, EngineError> {
    let claim = common.token_signer.verify::<ConsentClaim>(consent_token).ok_or(EngineError::NotOwner)?;
    if caller.user != Some(claim.member) {
        return Err(EngineError::NotOwner);
    }
    let consent = GrantedConsent { id: claim.id, expires_at: claim.expires_at };
    let (common, (reply, answer)) = (Arc::clone(common), oneshot::channel());
    tokio::spawn(async move {
        let revoked = match write_consents(&common, QueueWrite::RevokeConsent { consent }).await {
            Ok(QueueOutcome::ConsentRevoked { was_taken }) => Ok(was_taken),
            Ok(_) => Err(EngineError::Internal),
            Err(error) => Err(error),
        };
        let _ = reply.send(revoked);
    });
    Ok(PendingAnswer::Pending(answer))
}

/// Takes consents for a search that reserves, or for an advertisement. A repeated call changes nothing.
pub(crate) async fn take_consents(
    common: &Common,
    taken_by: ConsentConsumer,
    consents: &CheckedConsents,
) -> Result<(), EngineError> {
    let write = QueueWrite::TakeConsents { taken_by, consents: consents.granted_consents() };
    match write_consents(common, write).await? {
        QueueOutcome::ConsentsTaken => Ok(()),
        QueueOutcome::ConsentUnavailable(spent) => Err(consents.spent_error(spent)),
        _ => Err(EngineError::Internal),
    }
}

async fn write_consents(common: &Common, write: QueueWrite) -> Result<QueueOutcome, EngineError> {
    let outcomes = common.store.commit_queues(&[write]).await;
    common.record_commit(&outcomes);
    let unavailable = EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    let mut outcomes = outcomes.map_err(|error| {
        tracing::warn!(%error, "consents not written");
        unavailable.clone()
    })?;
    outcomes.pop().filter(|outcome| *outcome != QueueOutcome::UnknownRow).ok_or(unavailable)
}

/// Checks a party that searches, reserves, creates or enters: it contains the caller, and the other players consented.
pub(crate) fn check_party_consents(
    common: &Common,
    caller: &Caller,
    (ruleset, purpose): (&Ruleset, ConsentPurpose),
    session: &Session,
    consents: &PartyConsents,
    now: UnixMs,
) -> Result<CheckedConsents, EngineError> {
    let Some(leader) = caller.user else { return Ok(CheckedConsents::default()) };
    if !session.players.iter().any(|player| player.user == leader) {
        let problem = "does not contain the caller; include the user of the caller's authentication token";
        return Err(field_error(consents.players_field_path, problem));
    }
    check_consent_tokens(common, leader, (ruleset, purpose), (session, &[]), consents, now)
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
) -> Result<CheckedConsents, EngineError> {
    let Some(leader) = caller.user.filter(|_| ruleset.consent.is_required()) else {
        return Ok(CheckedConsents::default());
    };
    let search = (ruleset, ConsentPurpose::Search);
    check_consent_tokens(common, leader, search, (session, &users_of_advert()), consents, now)
}

/// Checks the consent token of each player except the leader and the `exempt` users.
fn check_consent_tokens(
    common: &Common,
    leader: UserKey,
    (ruleset, purpose): (&Ruleset, ConsentPurpose),
    (session, exempt): (&Session, &[UserKey]),
    consents: &PartyConsents,
    now: UnixMs,
) -> Result<CheckedConsents, EngineError> {
    let mut checked = CheckedConsents::default();
    if !ruleset.consent.is_required() {
        return Ok(checked);
    }
    let mut problems = Vec::new();
    for (index, player) in session.players.iter().enumerate() {
        if player.user == leader || exempt.contains(&player.user) {
            continue;
        }
        let path = format!("{}[{index}].consent_token", consents.players_field_path);
        let consent_token = consents.consent_tokens.get(index).map_or(&[][..], Vec::as_slice);
        let is_for_this = |claim: &ConsentClaim| {
            let expected = (player.user, leader, ruleset.set_id, purpose);
            (claim.member, claim.leader, claim.set_id, claim.purpose) == expected && now < claim.expires_at
        };
        let problem = match common.token_signer.verify::<ConsentClaim>(consent_token).filter(is_for_this) {
            Some(claim) => {
                checked.consents.push((path, GrantedConsent { id: claim.id, expires_at: claim.expires_at }));
                checked.users_acting_for_themselves.extend((!claim.may_answer).then_some(player.user));
                continue;
            }
            None if consent_token.is_empty() => format!(
                "is required by ruleset `{}`; have this player call GrantConsent and send its token",
                ruleset.name
            ),
            None => {
                "is expired, or not this player's consent for the caller, the set and the use; have this player call \
                     GrantConsent again"
                    .into()
            }
        };
        problems.push(FieldProblem { path, message: problem });
    }
    checked.users_acting_for_themselves.sort_unstable();
    if problems.is_empty() { Ok(checked) } else { Err(EngineError::InvalidFields(problems)) }
}

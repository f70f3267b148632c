//! Who may speak for whom: a player's game for its own user, and for others who have said so.

use crate::auth::token::ConsentClaim;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::{AdvertisementId, SetId, UserKey};
use crate::domain::ruleset::{PartyConsentPolicy, Ruleset};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::Engine;
use crate::engine::command::{Caller, GrantConsentAnswer, PartyConsents};
use crate::engine::core::Core;
use crate::engine::error::EngineError;

/// How long consent is good: long enough to find a game, short enough that nobody is dragged into the next one.
const CONSENT_TTL_MS: u32 = 5 * 60 * 1000;

impl Engine {
    /// The caller is willing to be taken along by `leader`. Anonymous callers are asked for nothing, and get nothing.
    pub fn grant_consent(&self, caller: &Caller, leader: UserKey) -> Result<GrantConsentAnswer, EngineError> {
        let Some(member) = caller.user else {
            return match caller.subject {
                None => Ok(GrantConsentAnswer { consent_token: Vec::new(), expires_in_ms: 0 }),
                Some(_) => Err(EngineError::ClientRoleRequired),
            };
        };
        let until = self.core.clock.now().plus_ms(u64::from(CONSENT_TTL_MS));
        let token = self.core.token_signer.sign(&ConsentClaim { member, leader, expires_at: until });
        Ok(GrantConsentAnswer { consent_token: token, expires_in_ms: CONSENT_TTL_MS })
    }
}

impl Core {
    /// A party that looks, takes seats or begins to advertise: whoever leads it is in it, and the others come along.
    pub(super) fn check_party_consents(
        &self,
        caller: &Caller,
        ruleset: &Ruleset,
        session: &Session,
        consents: &PartyConsents,
        now: UnixMs,
    ) -> Result<(), EngineError> {
        let Some(leader) = caller.user else { return Ok(()) };
        if !session.players.iter().any(|player| player.user == leader) {
            let what =
                "does not have the caller in it: a player's game speaks for its own user, by the name in its token";
            return Err(EngineError::InvalidFields(vec![FieldProblem {
                path: consents.players_field_path.into(),
                message: what.into(),
            }]));
        }
        self.check_consent_tokens(leader, ruleset, session, consents, &[], now)
    }

    /// A session that says something else than before: whoever is new in it came by a reservation or comes along.
    pub(super) fn check_new_players_consents(
        &self,
        caller: &Caller,
        (id, set_id): (AdvertisementId, SetId),
        ruleset: &Ruleset,
        session: &Session,
        consents: &PartyConsents,
        now: UnixMs,
    ) -> Result<(), EngineError> {
        let Some(leader) = caller.user.filter(|_| ruleset.consent == PartyConsentPolicy::Required) else {
            return Ok(());
        };
        let mut known = Vec::new();
        if let Some(shelf) = self.advert_sets.get(set_id) {
            let shelf = shelf.read();
            if let Some(record) = shelf.get(id) {
                known.extend(record.advertisement.session.players.iter().map(|player| player.user));
                known.extend(record.reservations.iter().flat_map(|reservation| reservation.users.iter().copied()));
            }
        }
        self.check_consent_tokens(leader, ruleset, session, consents, &known, now)
    }

    fn check_consent_tokens(
        &self,
        leader: UserKey,
        ruleset: &Ruleset,
        session: &Session,
        consents: &PartyConsents,
        known: &[UserKey],
        now: UnixMs,
    ) -> Result<(), EngineError> {
        if ruleset.consent == PartyConsentPolicy::Assumed {
            return Ok(());
        }
        let mut problems = Vec::new();
        for (index, player) in session.players.iter().enumerate() {
            if player.user == leader || known.contains(&player.user) {
                continue;
            }
            let token = consents.consent_tokens.get(index).map_or(&[][..], Vec::as_slice);
            let claim = self.token_signer.verify::<ConsentClaim>(token);
            let what = match claim {
                Some(claim) if (claim.member, claim.leader) == (player.user, leader) && now < claim.expires_at => {
                    continue;
                }
                _ if token.is_empty() => "is missing: `{ruleset}` asks for what GrantConsent gave this player",
                _ => "is not this player's consent to come along with the caller, or has run out: ask for another",
            };
            let path = format!("{}[{index}].consent_token", consents.players_field_path);
            problems.push(FieldProblem { path, message: what.replace("{ruleset}", &ruleset.name) });
        }
        if problems.is_empty() { Ok(()) } else { Err(EngineError::InvalidFields(problems)) }
    }
}

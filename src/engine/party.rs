//! Who may speak for whom: a player's game for its own user, and for others who have said so.

use crate::auth::token::ConsentClaim;
use crate::domain::facts::FieldProblem;
use crate::domain::id::{AdvertisementId, SetId, UserKey};
use crate::domain::ruleset::{Consent, Ruleset};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::Engine;
use crate::engine::command::{Caller, ConsentAnswer, Consents};
use crate::engine::core::Core;
use crate::engine::fault::Fault;

/// How long consent is good: long enough to find a game, short enough that nobody is dragged into the next one.
const CONSENT_MS: u32 = 5 * 60 * 1000;

impl Engine {
    /// The caller is willing to be taken along by `leader`. Anonymous callers are asked for nothing, and get nothing.
    pub fn grant_consent(&self, caller: &Caller, leader: UserKey) -> Result<ConsentAnswer, Fault> {
        let Some(member) = caller.user else {
            return match caller.subject {
                None => Ok(ConsentAnswer { token: Vec::new(), expires_in_ms: 0 }),
                Some(_) => Err(Fault::NotAPlayer),
            };
        };
        let until = self.core.clock.now().after(u64::from(CONSENT_MS));
        let token = self.core.signer.seal(&ConsentClaim { member, leader, until });
        Ok(ConsentAnswer { token, expires_in_ms: CONSENT_MS })
    }
}

impl Core {
    /// A party that looks, takes seats or begins to advertise: whoever leads it is in it, and the others come along.
    pub(super) fn check_party(
        &self,
        caller: &Caller,
        ruleset: &Ruleset,
        session: &Session,
        consents: &Consents,
        now: UnixMs,
    ) -> Result<(), Fault> {
        let Some(leader) = caller.user else { return Ok(()) };
        if !session.players.iter().any(|player| player.user == leader) {
            let what =
                "does not have the caller in it: a player's game speaks for its own user, by the name in its token";
            return Err(Fault::Fields(vec![FieldProblem { path: consents.players_path.into(), what: what.into() }]));
        }
        self.check_consents(leader, ruleset, session, consents, &[], now)
    }

    /// A session that says something else than before: whoever is new in it came by a reservation or comes along.
    pub(super) fn check_joined(
        &self,
        caller: &Caller,
        (id, set_id): (AdvertisementId, SetId),
        ruleset: &Ruleset,
        session: &Session,
        consents: &Consents,
        now: UnixMs,
    ) -> Result<(), Fault> {
        let Some(leader) = caller.user.filter(|_| ruleset.consent == Consent::Required) else { return Ok(()) };
        let mut known = Vec::new();
        if let Some(shelf) = self.directory.shelf(set_id) {
            let shelf = shelf.read();
            if let Some(record) = shelf.get(id) {
                known.extend(record.advertisement.session.players.iter().map(|player| player.user));
                known.extend(record.reservations.iter().flat_map(|reservation| reservation.users.iter().copied()));
            }
        }
        self.check_consents(leader, ruleset, session, consents, &known, now)
    }

    fn check_consents(
        &self,
        leader: UserKey,
        ruleset: &Ruleset,
        session: &Session,
        consents: &Consents,
        known: &[UserKey],
        now: UnixMs,
    ) -> Result<(), Fault> {
        if ruleset.consent == Consent::Assumed {
            return Ok(());
        }
        let mut problems = Vec::new();
        for (index, player) in session.players.iter().enumerate() {
            if player.user == leader || known.contains(&player.user) {
                continue;
            }
            let token = consents.tokens.get(index).map_or(&[][..], Vec::as_slice);
            let claim = self.signer.open::<ConsentClaim>(token);
            let what = match claim {
                Some(claim) if (claim.member, claim.leader) == (player.user, leader) && now < claim.until => continue,
                _ if token.is_empty() => "is missing: `{ruleset}` asks for what GrantConsent gave this player",
                _ => "is not this player's consent to come along with the caller, or has run out: ask for another",
            };
            let path = format!("{}[{index}].consent_token", consents.players_path);
            problems.push(FieldProblem { path, what: what.replace("{ruleset}", &ruleset.name) });
        }
        if problems.is_empty() { Ok(()) } else { Err(Fault::Fields(problems)) }
    }
}

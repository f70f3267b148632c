//! Publishing, replacing, keeping alive and withdrawing: from a command to a job for the writer.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::auth::token::AdvertisementClaim;
use crate::domain::advertisement::{Advertisement, AllowedRange, Kind};
use crate::domain::attribute::{Origin, ValueKind};
use crate::domain::facts::{self, FieldProblem};
use crate::domain::id::AdvertisementId;
use crate::domain::limit;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::command::{Caller, Delete, Update, UpdateAnswer};
use crate::engine::fault::Fault;
use crate::engine::job::{Extend, Job, Publish};
use crate::engine::receipt::{Proof, Seen};
use crate::engine::seeker::{check_session, field};
use crate::engine::{Engine, Submitted};

impl Engine {
    /// Publishes, replaces or keeps alive. What is submitted about one advertisement takes effect in the order
    /// submitted, and dropping the answer cancels nothing.
    pub fn update(&self, caller: &Caller, mut update: Update) -> Result<Submitted<UpdateAnswer>, Fault> {
        let now = self.core.clock.now();
        let creates = update.target.is_none();
        let (claim, proof) = match update.target.take() {
            Some((id, token)) => {
                let claim = self.own_claim(caller, id, &token)?;
                (claim, self.core.signer.would_seal_again(&token).then_some(Proof { claim, token }))
            }
            None => (self.new_claim(caller, &update, now)?, None),
        };
        if update.set_id.is_some_and(|set_id| set_id != claim.set_id) {
            let what = format!("the advertisement belongs to set {}; delete it and create another", claim.set_id);
            return Err(field("matchmaking_set_id", what));
        }
        if update.kind.is_some_and(|kind| kind != claim.kind) {
            return Err(field("kind", "cannot change; delete the advertisement and create another"));
        }
        match update.session.take() {
            Some(session) => {
                let proof = proof.unwrap_or_else(|| Proof { claim, token: self.core.signer.seal(&claim) });
                let ruleset = self.core.ruleset(claim.set_id, update.hash)?;
                match creates {
                    true => self.core.check_party(caller, &ruleset, &session, &update.consents, now)?,
                    false => {
                        let which = (claim.id, claim.set_id);
                        self.core.check_joined(caller, which, &ruleset, &session, &update.consents, now)?;
                    }
                }
                self.publish(caller, proof, ruleset, session, update)
            }
            None => self.keep_alive(claim, proof, update, now),
        }
    }

    /// Withdraws. What is already gone is gone; either way it stays deleted.
    pub fn delete(&self, caller: &Caller, delete: Delete) -> Result<Submitted<()>, Fault> {
        let claim = self.own_claim(caller, delete.id, &delete.token)?;
        let (reply, answer) = oneshot::channel();
        self.submit(Job::Delete(claim.id, claim.set_id, reply, self.core.flights.begin(claim.id)))?;
        Ok(Submitted::Waiting(answer))
    }

    /// The claim in `token`, if it is about `id` and was given to this caller.
    fn own_claim(&self, caller: &Caller, id: AdvertisementId, token: &[u8]) -> Result<AdvertisementClaim, Fault> {
        let claim = self.core.signer.open::<AdvertisementClaim>(token).ok_or(Fault::NotYours)?;
        if claim.id != id || claim.subject != caller.subject {
            return Err(Fault::NotYours);
        }
        Ok(claim)
    }

    /// The claim of a new advertisement. Its name is derived from caller and key, so that a retried create is the same
    /// one; an anonymous caller's key must be unguessable, or strangers would share names.
    fn new_claim(&self, caller: &Caller, update: &Update, now: UnixMs) -> Result<AdvertisementClaim, Fault> {
        let Some(set_id) = update.set_id else {
            return Err(field("matchmaking_set_id", "is required for a new advertisement"));
        };
        if update.session.is_none() {
            return Err(field("session_composition", "is required for a new advertisement"));
        }
        let nonce = update.nonce.filter(|_| caller.subject.is_some()).map(|nonce| format!("nonce {nonce}"));
        let id = match update.idempotency_key.as_deref().or(nonce.as_deref()) {
            Some(key) if caller.subject.is_none() && key.len() < limit::ANONYMOUS_KEY_BYTES_MIN => {
                let least = limit::ANONYMOUS_KEY_BYTES_MIN;
                let what = format!("must be {least} random characters or more from an anonymous caller");
                return Err(field("idempotency_key", what));
            }
            Some(key) => self.core.signer.advertisement_id(caller.subject, set_id, key),
            None => AdvertisementId::from_bytes(self.core.clock.random_bytes()),
        };
        let kind = update.kind.unwrap_or_default();
        if kind == Kind::Server && caller.subject.is_some() && caller.origin != Origin::Server {
            return Err(Fault::NotAServer);
        }
        Ok(AdvertisementClaim { id, set_id, kind, subject: caller.subject, since: now })
    }

    fn publish(
        &self,
        caller: &Caller,
        proof: Proof,
        ruleset: Arc<Ruleset>,
        session: Session,
        update: Update,
    ) -> Result<Submitted<UpdateAnswer>, Fault> {
        let claim = proof.claim;
        // Where a game server stands is no secret: players are told its address.
        let (session, mut ignored) = match claim.kind {
            Kind::Session => self.core.placed_for_others(caller, session)?,
            Kind::Server => self.core.placed(caller, session)?,
        };
        check_session(&ruleset, &session)?;
        check_allowed(&ruleset, &update.allowed)?;
        ignored.extend(facts::ignored(&ruleset, &session));
        let advertisement = Arc::new(Advertisement {
            id: claim.id,
            set_id: claim.set_id,
            kind: claim.kind,
            subject: claim.subject,
            since: claim.since,
            hash: ruleset.hash,
            session,
            allowed: update.allowed,
            connect_data: update.connect_data,
        });
        let publish = Publish {
            encoded: (self.core.encode)(&advertisement),
            advertisement,
            ruleset,
            proof,
            time_to_live_ms: self.core.settings.time_to_live_ms(update.time_to_live_ms),
            confirmed: update.confirmed,
            settled: update.settled,
            ignored,
        };
        let (reply, answer) = oneshot::channel();
        self.submit(Job::Publish(Box::new(publish), reply, self.core.flights.begin(claim.id)))?;
        Ok(Submitted::Waiting(answer))
    }

    /// A heartbeat. Answered from memory while what is stored already covers it and nothing of this advertisement is
    /// on its way to the store; most are.
    fn keep_alive(
        &self,
        claim: AdvertisementClaim,
        proof: Option<Proof>,
        update: Update,
        now: UnixMs,
    ) -> Result<Submitted<UpdateAnswer>, Fault> {
        let quiet = update.confirmed.is_empty() && update.settled.is_empty() && !self.core.flights.any(claim.id);
        let time_to_live_ms = update.time_to_live_ms.map(|asked| self.core.settings.time_to_live_ms(Some(asked)));
        if quiet && let Some(seen) = self.extend_in_memory(&claim, time_to_live_ms, now)? {
            return Ok(Submitted::Done(self.core.update_answer(seen, proof, now)));
        }
        let extend = Extend {
            id: claim.id,
            proof,
            set_id: claim.set_id,
            time_to_live_ms,
            confirmed: update.confirmed,
            settled: update.settled,
        };
        let (reply, answer) = oneshot::channel();
        self.submit(Job::Extend(Box::new(extend), reply, self.core.flights.begin(claim.id)))?;
        Ok(Submitted::Waiting(answer))
    }

    /// Extends without the store, if the stored expiry allows; `None` when the store must be told first.
    fn extend_in_memory(
        &self,
        claim: &AdvertisementClaim,
        time_to_live_ms: Option<u32>,
        now: UnixMs,
    ) -> Result<Option<Seen>, Fault> {
        let shelf = self.core.directory.shelf(claim.set_id).ok_or(Fault::AdvertisementNotFound)?;
        let mut shelf = shelf.write();
        let record = shelf.get(claim.id).filter(|record| now < record.expires).ok_or(Fault::AdvertisementNotFound)?;
        let expires = now.after(u64::from(time_to_live_ms.unwrap_or(record.time_to_live_ms)));
        // Whoever took the last heartbeat may expire it at what was promised then: the store must hear who took this one.
        if record.stored_expires < expires || !record.held || record.pending {
            return Ok(None);
        }
        shelf.extend(claim.id, expires);
        let seen = Seen::of(shelf.get(claim.id).ok_or(Fault::AdvertisementNotFound)?, now);
        drop(shelf);
        self.core.metrics.quiet_heartbeats.inc();
        Ok(Some(seen))
    }
}

/// Ranges must name number attributes of the ruleset and not be empty.
fn check_allowed(ruleset: &Ruleset, allowed: &[AllowedRange]) -> Result<(), Fault> {
    let mut problems = Vec::new();
    for (index, range) in allowed.iter().enumerate() {
        let known = ruleset.attribute_index(&range.attribute).map(|at| ruleset.attributes[at].kind);
        let what = match (known, range.min, range.max) {
            (None, ..) => format!("`{}` is not declared by ruleset `{}`", range.attribute, ruleset.name),
            (Some(kind), ..) if kind != ValueKind::Number => format!("`{}` is not a number", range.attribute),
            (_, Some(min), Some(max)) if max < min => "min must not be greater than max".into(),
            (_, None, None) => "give min, max or both".into(),
            _ => continue,
        };
        problems.push(FieldProblem { path: format!("allowed[{index}]"), what });
    }
    if problems.is_empty() { Ok(()) } else { Err(Fault::Fields(problems)) }
}

//! Publishing, replacing, keeping alive and withdrawing: from a command to a job for the writer.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::auth::token::AdvertisementClaim;
use crate::domain::advertisement::{Advertisement, AdvertisementKind, AllowedRange};
use crate::domain::attribute::{ValueOrigin, ValueType};
use crate::domain::attribute_values::{self, FieldProblem};
use crate::domain::id::AdvertisementId;
use crate::domain::limit;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::adverts::checked_session::{check_session, field_error};
use crate::engine::adverts::update_answer::{SignedToken, UpdateSnapshot};
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, PublishAdvert};
use crate::engine::command::{Caller, DeleteAdvertCommand, UpdateAdvertAnswer, UpdateAdvertCommand};
use crate::engine::error::EngineError;
use crate::engine::{Engine, PendingAnswer};

impl Engine {
    /// Publishes, replaces or keeps alive. What is submitted about one advertisement takes effect in the order
    /// submitted, and dropping the answer cancels nothing.
    pub fn update_advertisement(
        &self,
        caller: &Caller,
        mut update: UpdateAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let now = self.core.clock.now();
        let creates = update.existing_advert.is_none();
        let (claim, proof) = match update.existing_advert.take() {
            Some((id, token)) => {
                let claim = self.verify_advertisement_token(caller, id, &token)?;
                (
                    claim,
                    self.core.token_signer.is_signed_with_current_key(&token).then_some(SignedToken { claim, token }),
                )
            }
            None => (self.new_advertisement_claim(caller, &update, now)?, None),
        };
        if update.set_id.is_some_and(|set_id| set_id != claim.set_id) {
            let what = format!("the advertisement belongs to set {}; delete it and create another", claim.set_id);
            return Err(field_error("matchmaking_set_id", what));
        }
        if update.kind.is_some_and(|kind| kind != claim.kind) {
            return Err(field_error("kind", "cannot change; delete the advertisement and create another"));
        }
        match update.session.take() {
            Some(session) => {
                let proof = proof.unwrap_or_else(|| SignedToken { claim, token: self.core.token_signer.sign(&claim) });
                let ruleset = self.core.ruleset(claim.set_id, update.ruleset_hash)?;
                match creates {
                    true => self.core.check_party_consents(caller, &ruleset, &session, &update.consents, now)?,
                    false => {
                        let which = (claim.advertisement_id, claim.set_id);
                        self.core.check_new_players_consents(
                            caller,
                            which,
                            &ruleset,
                            &session,
                            &update.consents,
                            now,
                        )?;
                    }
                }
                self.submit_publish(caller, proof, ruleset, session, update)
            }
            None => self.heartbeat_advertisement(claim, proof, update, now),
        }
    }

    /// Withdraws. What is already gone is gone; either way it stays deleted.
    pub fn delete_advertisement(
        &self,
        caller: &Caller,
        delete: DeleteAdvertCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        let claim = self.verify_advertisement_token(caller, delete.id, &delete.advertisement_token)?;
        let (reply, answer) = oneshot::channel();
        self.send_to_advert_writer(AdvertWriterCommand::Delete(
            claim.advertisement_id,
            claim.set_id,
            reply,
            self.core.in_flight_changes.begin(claim.advertisement_id),
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }

    /// The claim in `token`, if it is about `id` and was given to this caller.
    fn verify_advertisement_token(
        &self,
        caller: &Caller,
        id: AdvertisementId,
        token: &[u8],
    ) -> Result<AdvertisementClaim, EngineError> {
        let claim = self.core.token_signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
        if claim.advertisement_id != id || claim.subject != caller.subject {
            return Err(EngineError::NotOwner);
        }
        Ok(claim)
    }

    /// The claim of a new advertisement. Its name is derived from caller and key, so that a retried create is the same
    /// one; an anonymous caller's key must be unguessable, or strangers would share names.
    fn new_advertisement_claim(
        &self,
        caller: &Caller,
        update: &UpdateAdvertCommand,
        now: UnixMs,
    ) -> Result<AdvertisementClaim, EngineError> {
        let Some(set_id) = update.set_id else {
            return Err(field_error("matchmaking_set_id", "is required for a new advertisement"));
        };
        if update.session.is_none() {
            return Err(field_error("session_composition", "is required for a new advertisement"));
        }
        let nonce = update.envelope_nonce.filter(|_| caller.subject.is_some()).map(|nonce| format!("nonce {nonce}"));
        let id = match update.idempotency_key.as_deref().or(nonce.as_deref()) {
            Some(key) if caller.subject.is_none() && key.len() < limit::ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN => {
                let least = limit::ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN;
                let what = format!("must be {least} random characters or more from an anonymous caller");
                return Err(field_error("idempotency_key", what));
            }
            Some(key) => self.core.token_signer.derive_advertisement_id(caller.subject, set_id, key),
            None => AdvertisementId::from_bytes(self.core.clock.random_bytes()),
        };
        let kind = update.kind.unwrap_or_default();
        if kind == AdvertisementKind::GameServer && caller.subject.is_some() && caller.origin != ValueOrigin::GameServer
        {
            return Err(EngineError::GameServerRoleRequired);
        }
        Ok(AdvertisementClaim { advertisement_id: id, set_id, kind, subject: caller.subject, advertised_since: now })
    }

    fn submit_publish(
        &self,
        caller: &Caller,
        proof: SignedToken,
        ruleset: Arc<Ruleset>,
        session: Session,
        update: UpdateAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let claim = proof.claim;
        // Where a game server stands is no secret: players are told its address.
        let (session, mut ignored) = match claim.kind {
            AdvertisementKind::Session => self.core.with_coarse_locality(caller, session)?,
            AdvertisementKind::GameServer => self.core.with_resolved_locality(caller, session)?,
        };
        check_session(&ruleset, &session)?;
        check_allowed_ranges(&ruleset, &update.allowed_ranges)?;
        ignored.extend(attribute_values::untrusted_fields(&ruleset, &session));
        let advertisement = Arc::new(Advertisement {
            id: claim.advertisement_id,
            set_id: claim.set_id,
            kind: claim.kind,
            publisher: claim.subject,
            advertised_since: claim.advertised_since,
            ruleset_hash: ruleset.hash,
            session,
            allowed_ranges: update.allowed_ranges,
            connect_data: update.connect_data,
        });
        let publish = PublishAdvert {
            encoded_advert: (self.core.encode_advert)(&advertisement),
            advertisement,
            ruleset,
            owner_token: proof,
            ttl_ms: self.core.settings.granted_ttl_ms(update.ttl_ms),
            confirmed_reservations: update.confirmed_reservations,
            joined_reservations: update.joined_reservations,
            ignored_fields: ignored,
        };
        let (reply, answer) = oneshot::channel();
        self.send_to_advert_writer(AdvertWriterCommand::Publish(
            Box::new(publish),
            reply,
            self.core.in_flight_changes.begin(claim.advertisement_id),
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }

    /// A heartbeat. Answered from memory while what is stored already covers it and nothing of this advertisement is
    /// on its way to the store; most are.
    fn heartbeat_advertisement(
        &self,
        claim: AdvertisementClaim,
        proof: Option<SignedToken>,
        update: UpdateAdvertCommand,
        now: UnixMs,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let quiet = update.confirmed_reservations.is_empty()
            && update.joined_reservations.is_empty()
            && !self.core.in_flight_changes.contains(claim.advertisement_id);
        let time_to_live_ms = update.ttl_ms.map(|asked| self.core.settings.granted_ttl_ms(Some(asked)));
        if quiet && let Some(seen) = self.try_extend_in_memory(&claim, time_to_live_ms, now)? {
            return Ok(PendingAnswer::Ready(self.core.build_update_answer(seen, proof, now)));
        }
        let extend = ExtendAdvertTtl {
            id: claim.advertisement_id,
            owner_token: proof,
            set_id: claim.set_id,
            ttl_ms: time_to_live_ms,
            confirmed_reservations: update.confirmed_reservations,
            joined_reservations: update.joined_reservations,
        };
        let (reply, answer) = oneshot::channel();
        self.send_to_advert_writer(AdvertWriterCommand::ExtendTtl(
            Box::new(extend),
            reply,
            self.core.in_flight_changes.begin(claim.advertisement_id),
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }

    /// Extends without the store, if the stored expiry allows; `None` when the store must be told first.
    fn try_extend_in_memory(
        &self,
        claim: &AdvertisementClaim,
        time_to_live_ms: Option<u32>,
        now: UnixMs,
    ) -> Result<Option<UpdateSnapshot>, EngineError> {
        let shelf = self.core.advert_sets.get(claim.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut shelf = shelf.write();
        let record = shelf
            .get(claim.advertisement_id)
            .filter(|record| now < record.expires_at)
            .ok_or(EngineError::AdvertisementNotFound)?;
        let expires = now.plus_ms(u64::from(time_to_live_ms.unwrap_or(record.ttl_ms)));
        // Whoever took the last heartbeat may expire it at what was promised then: the store must hear who took this one.
        if record.stored_expires_at < expires || !record.is_heartbeat_owner || record.is_unwritten {
            return Ok(None);
        }
        shelf.extend_expiry(claim.advertisement_id, expires);
        let seen = UpdateSnapshot::from_record(
            shelf.get(claim.advertisement_id).ok_or(EngineError::AdvertisementNotFound)?,
            now,
        );
        drop(shelf);
        self.core.metrics.heartbeats_unwritten.inc();
        Ok(Some(seen))
    }
}

/// Ranges must name number attributes of the ruleset and not be empty.
fn check_allowed_ranges(ruleset: &Ruleset, allowed: &[AllowedRange]) -> Result<(), EngineError> {
    let mut problems = Vec::new();
    for (index, range) in allowed.iter().enumerate() {
        let known = ruleset.attribute_index(&range.attribute).map(|at| ruleset.attributes[at].value_type);
        let what = match (known, range.min, range.max) {
            (None, ..) => format!("`{}` is not declared by ruleset `{}`", range.attribute, ruleset.name),
            (Some(kind), ..) if kind != ValueType::Number => format!("`{}` is not a number", range.attribute),
            (_, Some(min), Some(max)) if max < min => "min must not be greater than max".into(),
            (_, None, None) => "give min, max or both".into(),
            _ => continue,
        };
        problems.push(FieldProblem { path: format!("allowed[{index}]"), message: what });
    }
    if problems.is_empty() { Ok(()) } else { Err(EngineError::InvalidFields(problems)) }
}

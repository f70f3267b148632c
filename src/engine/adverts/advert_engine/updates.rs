//! Update and delete commands of advertisements: validates them and sends them to the writer.

use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::auth::token::{AdvertisementClaim, ConsentPurpose};
use crate::domain::advertisement::{Advertisement, AdvertisementKind, AllowedRange};
use crate::domain::attribute::{ValueOrigin, ValueType};
use crate::domain::attribute_values::{self, FieldProblem};
use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::limit;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::probing::ProbedPlayers;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_engine::AdvertEngine;
use crate::engine::adverts::owner_limits::{self, AdvertOwnerInput};
use crate::engine::adverts::update_answer::{TokenWithClaim, UpdateSnapshot};
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, PublishAdvert};
use crate::engine::beacons::party_latency::{AppliedLatencyTokens, apply_latency_tokens};
use crate::engine::checked_session::validate_session_for_ruleset;
use crate::engine::command::{Caller, DeleteAdvertCommand, PublishOrHeartbeatAdvertCommand, UpdateAdvertAnswer};
use crate::engine::error::{EngineError, field_error};
use crate::engine::party_consent::{CheckedConsents, check_new_players_consents, check_party_consents};
use crate::engine::request_digest;
use crate::engine::writer_inbox::PendingAnswer;

impl AdvertEngine {
    /// Publishes, replaces or extends an advertisement.
    ///
    /// Changes of one advertisement take effect in the order submitted. Dropping the answer does not cancel the change.
    pub(crate) fn update_advertisement(
        &self,
        caller: &Caller,
        mut update: PublishOrHeartbeatAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let now = self.state.common.clock.now();
        let is_create = update.existing_advert.is_none();
        let mut create_digest = None;
        let (claim, signed_token) = match update.existing_advert.take() {
            Some((id, token)) => {
                let claim = self.verify_advertisement_token(caller, id, &token)?;
                (
                    claim,
                    self.state
                        .common
                        .token_signer
                        .is_signed_with_current_key(&token)
                        .then_some(TokenWithClaim { claim, token }),
                )
            }
            None => {
                let session = update.session.as_ref();
                create_digest = session.map(|it| request_digest::advert_creation_digest(caller.subject, it, &update));
                let (claim, is_known) = self.new_advertisement_claim(caller, &update, create_digest, now)?;
                if is_known {
                    return self.submit_repeated_creation(claim, update, create_digest);
                }
                self.state.common.check_set_not_retiring(claim.set_id)?;
                (claim, None)
            }
        };
        if update.set_id.is_some_and(|set_id| set_id != claim.set_id) {
            let problem = format!("must be {}, the advertisement's set; delete it and create another", claim.set_id);
            return Err(field_error("matchmaking_set_id", problem));
        }
        if update.kind.is_some_and(|kind| kind != claim.kind) {
            return Err(field_error("kind", "cannot change; delete the advertisement and create another"));
        }
        match update.session.take() {
            Some(session) => {
                let signed_token = signed_token
                    .unwrap_or_else(|| TokenWithClaim { claim, token: self.state.common.token_signer.sign(&claim) });
                let ruleset = self.state.common.current_or_cached_ruleset(claim.set_id, update.ruleset_hash)?;
                let (common, consents) = (&self.state.common, &update.consents);
                let consents = if is_create {
                    let purpose = (&*ruleset, ConsentPurpose::Search);
                    check_party_consents(common, caller, purpose, &session, consents, now)?
                } else {
                    let users = || self.state.users_of_advert(claim.advertisement_id, claim.set_id);
                    check_new_players_consents(common, caller, &ruleset, &session, consents, users, now)?
                };
                self.submit_publish(
                    caller,
                    signed_token,
                    ruleset,
                    session,
                    update,
                    (is_create, create_digest, consents),
                )
            }
            None => self.heartbeat_advertisement(claim, signed_token, update, now),
        }
    }

    /// Repeats the creation of an advertisement that is in memory. It stays as it is, and what holds for new ones, such as the
    /// ruleset in force, does not matter. The store refuses another request with the same key.
    fn submit_repeated_creation(
        &self,
        claim: AdvertisementClaim,
        update: PublishOrHeartbeatAdvertCommand,
        create_digest: Option<[u8; 16]>,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let ruleset = self.state.common.rulesets.ruleset_in_force(claim.set_id);
        let ignored = ruleset.zip(update.session.as_ref());
        let ignored_fields =
            ignored.map(|(ruleset, session)| attribute_values::ignored_untrusted_field_paths(&ruleset, session));
        self.submit_extend(ExtendAdvertTtl {
            id: claim.advertisement_id,
            token_to_return: None,
            set_id: claim.set_id,
            ttl_ms: update
                .ttl_ms
                .map(|requested| self.state.common.settings.granted_advertisement_ttl_ms(Some(requested))),
            confirmed_reservations: update.confirmed_reservations,
            joined_reservations: update.joined_reservations,
            create_digest,
            ignored_fields: ignored_fields.unwrap_or_default(),
        })
    }

    fn submit_extend(&self, extend: ExtendAdvertTtl) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let (reply, answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(extend.id);
        self.submit(AdvertWriterCommand::ExtendTtl(Box::new(extend), reply, in_flight))?;
        Ok(PendingAnswer::Pending(answer))
    }

    /// Deletes an advertisement. Idempotent; a late update cannot bring it back.
    pub(crate) fn delete_advertisement(
        &self,
        caller: &Caller,
        delete: DeleteAdvertCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        let claim = self.verify_advertisement_token(caller, delete.id, &delete.advertisement_token)?;
        let (reply, answer) = oneshot::channel();
        self.submit(AdvertWriterCommand::Delete(
            claim.advertisement_id,
            claim.set_id,
            reply,
            self.state.in_flight_changes.begin_change(claim.advertisement_id),
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }

    /// Whether an advertisement is in memory and has not expired.
    fn is_advertised(&self, set_id: SetId, id: AdvertisementId, now: UnixMs) -> bool {
        let set = self.state.advert_sets.get(set_id);
        set.is_some_and(|set| set.lock_for_read().get(id).is_some_and(|record| now < record.expires_at))
    }

    /// Claim in `token`, if it is for `id` and was issued to this caller.
    fn verify_advertisement_token(
        &self,
        caller: &Caller,
        id: AdvertisementId,
        token: &[u8],
    ) -> Result<AdvertisementClaim, EngineError> {
        let claim = self.state.common.token_signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
        if claim.advertisement_id != id || claim.subject != caller.subject {
            return Err(EngineError::NotOwner);
        }
        Ok(claim)
    }

    /// Claim of a new advertisement, and whether it is one that is advertised already.
    ///
    /// The id is derived from caller and key, so that a retried create returns the same one. An anonymous caller's key
    /// must be unguessable, or other callers could derive the same id.
    fn new_advertisement_claim(
        &self,
        caller: &Caller,
        update: &PublishOrHeartbeatAdvertCommand,
        create_digest: Option<[u8; 16]>,
        now: UnixMs,
    ) -> Result<(AdvertisementClaim, bool), EngineError> {
        let Some(set_id) = update.set_id else {
            return Err(field_error("matchmaking_set_id", "is required for a new advertisement"));
        };
        if update.session.is_none() {
            return Err(field_error("session_composition", "is required for a new advertisement"));
        }
        // A client counts its nonces from the beginning after a restart: the same number with another payload is another request.
        let nonce = update.envelope_nonce.filter(|_| caller.subject.is_some());
        let nonce =
            nonce.map(|nonce| format!("nonce {nonce} {:x}", u128::from_be_bytes(create_digest.unwrap_or_default())));
        let id = match update.idempotency_key.as_deref().or(nonce.as_deref()) {
            Some(key) if caller.subject.is_none() && key.len() < limit::ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN => {
                let min = limit::ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN;
                let problem = format!("is too short; an anonymous caller must send at least {min} random characters");
                return Err(field_error("idempotency_key", problem));
            }
            Some(key) => {
                let signer = &self.state.common.token_signer;
                let former = || signer.legacy_advertisement_id(caller.subject, set_id, key);
                let id = signer.derive_advertisement_id(caller.subject, key);
                let is_unknown = |id: &AdvertisementId| !self.is_advertised(set_id, *id, now);
                Some(id).filter(is_unknown).map(|_| former()).filter(|former| !is_unknown(former)).unwrap_or(id)
            }
            None => AdvertisementId::from_bytes(self.state.common.clock.random_bytes()),
        };
        let kind = update.kind.unwrap_or_default();
        if kind == AdvertisementKind::GameServer
            && caller.subject.is_some()
            && caller.program_kind != ValueOrigin::GameServer
        {
            return Err(EngineError::GameServerRoleRequired);
        }
        let claim =
            AdvertisementClaim { advertisement_id: id, set_id, kind, subject: caller.subject, advertised_since: now };
        Ok((claim, self.is_advertised(set_id, id, now)))
    }

    fn submit_publish(
        &self,
        caller: &Caller,
        signed_token: TokenWithClaim,
        ruleset: Arc<Ruleset>,
        session: Session,
        update: PublishOrHeartbeatAdvertCommand,
        (is_create, create_digest, consents): (bool, Option<[u8; 16]>, CheckedConsents),
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let claim = signed_token.claim;
        let (mut session, now) = (session, self.state.common.clock.now());
        let tokens = &update.latency_tokens;
        let AppliedLatencyTokens { mut ignored_fields, floors } =
            apply_latency_tokens(&self.state.common, caller, &ruleset, &mut session, tokens, now);
        let (session, untrusted) = match claim.kind {
            AdvertisementKind::Session => {
                self.state.common.with_coarse_locality_and_vector(caller, session, &floors)?
            }
            AdvertisementKind::GameServer => {
                self.state.common.with_exact_locality_and_vector(caller, session, &floors)?
            }
        };
        ignored_fields.extend(untrusted);
        validate_session_for_ruleset(&ruleset, &session)?;
        check_allowed_ranges(&ruleset, &update.allowed_ranges)?;
        ignored_fields.extend(attribute_values::ignored_untrusted_field_paths(&ruleset, &session));
        // A probe of a player's own machine shows its address to strangers, so the ruleset must want it too.
        let may_be_probed =
            caller.program_kind == ValueOrigin::GameServer || ruleset.probing.players != ProbedPlayers::Never;
        ignored_fields.extend(update.probe.as_ref().filter(|_| !may_be_probed).map(|_| "probe".to_owned()));
        let probe = update.probe.filter(|_| may_be_probed);
        // A live advertisement keeps its silo open, so repeating or updating it is not refused.
        let silo_use = self.state.common.open_silos.use_silo(session.silo, caller)?;
        let settings = &self.state.common.settings;
        let ttl_ms = settings.granted_advertisement_ttl_ms(update.ttl_ms);
        let owned = AdvertOwnerInput { kind: claim.kind, session: &session, is_create };
        let owner = owner_limits::advert_owner(settings, caller, &ruleset, owned, self.state.common.clock.now());
        let advertisement = Arc::new(Advertisement {
            id: claim.advertisement_id,
            set_id: claim.set_id,
            kind: claim.kind,
            publisher: claim.subject,
            advertised_since: claim.advertised_since,
            ruleset_hash: ruleset.hash,
            session,
            ttl_ms: NonZeroU32::new(ttl_ms),
            allowed_ranges: update.allowed_ranges.into(),
            connect_data: update.connect_data.into(),
            probe: probe.map(Box::new),
        });
        let publish = PublishAdvert {
            advertisement,
            ruleset,
            token_to_return: signed_token,
            ttl_ms,
            confirmed_reservations: update.confirmed_reservations,
            joined_reservations: update.joined_reservations,
            ignored_fields,
            silo_use,
            owner,
            create_digest,
        };
        let (reply, answer) = oneshot::channel();
        let command = AdvertWriterCommand::Publish(
            Box::new(publish),
            reply,
            self.state.in_flight_changes.begin_change(claim.advertisement_id),
        );
        self.take_consents_and_submit((|| claim.advertisement_id.into(), consents), command, answer)
    }

    /// Heartbeat. Usually answered from memory: if the stored expiry covers it and no change of the advertisement is in
    /// flight.
    fn heartbeat_advertisement(
        &self,
        claim: AdvertisementClaim,
        signed_token: Option<TokenWithClaim>,
        update: PublishOrHeartbeatAdvertCommand,
        now: UnixMs,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        let is_extend_only = update.confirmed_reservations.is_empty()
            && update.joined_reservations.is_empty()
            && !self.state.in_flight_changes.has_change(claim.advertisement_id);
        let ttl_ms =
            update.ttl_ms.map(|requested| self.state.common.settings.granted_advertisement_ttl_ms(Some(requested)));
        if is_extend_only && let Some(snapshot) = self.try_extend_in_memory(&claim, ttl_ms, now)? {
            return Ok(PendingAnswer::Ready(snapshot.into_answer(
                &self.state.common,
                &self.state.host_events,
                signed_token,
                now,
            )));
        }
        let extend = ExtendAdvertTtl {
            id: claim.advertisement_id,
            token_to_return: signed_token,
            set_id: claim.set_id,
            ttl_ms,
            confirmed_reservations: update.confirmed_reservations,
            joined_reservations: update.joined_reservations,
            create_digest: None,
            ignored_fields: Vec::new(),
        };
        self.submit_extend(extend)
    }

    /// Extends in memory if the stored expiry covers it; `None` if the store must be written first.
    fn try_extend_in_memory(
        &self,
        claim: &AdvertisementClaim,
        ttl_ms: Option<u32>,
        now: UnixMs,
    ) -> Result<Option<UpdateSnapshot>, EngineError> {
        let set = self.state.advert_sets.get(claim.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut set = set.lock_for_write();
        let record = set
            .get(claim.advertisement_id)
            .filter(|record| now < record.expires_at)
            .ok_or(EngineError::AdvertisementNotFound)?;
        let expires_at = now.plus_ms(u64::from(ttl_ms.unwrap_or(record.ttl_ms)));
        // The heartbeat owner may expire it at the expiry it acknowledged, so the store must record the new owner.
        if record.stored_expires_at < expires_at || !record.is_heartbeat_owner || record.is_unwritten {
            return Ok(None);
        }
        set.extend_expiry(claim.advertisement_id, expires_at);
        let snapshot = UpdateSnapshot::from_record(
            set.get(claim.advertisement_id).ok_or(EngineError::AdvertisementNotFound)?,
            now,
        );
        drop(set);
        self.state.common.metrics.heartbeats_unwritten.inc();
        Ok(Some(snapshot))
    }
}

/// Checks that ranges name number attributes of the ruleset and are not empty.
fn check_allowed_ranges(ruleset: &Ruleset, allowed_ranges: &[AllowedRange]) -> Result<(), EngineError> {
    let mut problems = Vec::new();
    for (index, range) in allowed_ranges.iter().enumerate() {
        let value_type = ruleset.attribute_index(&range.attribute).map(|column| ruleset.attributes[column].value_type);
        let problem = match (value_type, range.min, range.max) {
            (None, ..) => format!("attribute `{}` is not declared by ruleset `{}`", range.attribute, ruleset.name),
            (Some(value_type), ..) if value_type != ValueType::Number => {
                format!("attribute `{}` is not a number; ranges apply to numbers only", range.attribute)
            }
            (_, Some(min), Some(max)) if max < min => "min must not be greater than max".into(),
            (_, None, None) => "has neither min nor max; set at least one".into(),
            _ => continue,
        };
        problems.push(FieldProblem { path: format!("allowed_ranges[{index}]"), message: problem });
    }
    if problems.is_empty() { Ok(()) } else { Err(EngineError::InvalidFields(problems)) }
}

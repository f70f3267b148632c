//! Enter command: validates a party and writes its ticket.

use std::sync::Arc;

use crate::auth::token::{ConsentPurpose, HmacTokenSigner, TicketClaim};
use crate::domain::attribute_values::{self, AttributeValues};
use crate::domain::id::{TicketId, UserKey};
use crate::domain::player_details;
use crate::domain::queue::entry::EnteredSession;
use crate::domain::queue::prepared_ticket::default_offered_roles;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::session::Session;
use crate::domain::team::{self, TeamParty};
use crate::domain::time::UnixMs;
use crate::engine::beacons::party_latency::{AppliedLatencyTokens, apply_latency_tokens, published_player_vectors};
use crate::engine::checked_session::validate_session_for_ruleset;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::party_consent::check_party_consents;
use crate::engine::queues::command::{EnterQueueAnswer, EnterQueueCommand};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::stored_ticket::{expiry_after_heartbeat, queue_key_of};
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::request_digest;
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket};

impl QueueEngine {
    /// Enters a party into a queue. Durable when it returns; dropping the future does not cancel the write.
    pub async fn enter_queue(
        &self,
        caller: &Caller,
        enter: EnterQueueCommand,
    ) -> Result<EnterQueueAnswer, EngineError> {
        let now = self.shared.common.clock.now();
        let id = self.shared.common.token_signer.derive_ticket_id(caller.subject, &enter.idempotency_key);
        let request_digest = request_digest::queue_entry_digest(caller.subject, &enter);
        // What holds for new tickets, such as the ruleset in force, does not matter to a repeated request.
        if let Some(stored) = self.ticket_of_repeated_enter(caller, &enter, (id, request_digest))? {
            return Ok(self.answer_for_repeated_enter(caller, &enter, &stored, now));
        }
        let ruleset = self.shared.common.current_or_cached_ruleset(enter.set_id, enter.ruleset_hash)?;
        let (Some(queue), Some(teams)) = (&ruleset.queue, &ruleset.teams) else {
            return Err(EngineError::NoQueue(enter.set_id));
        };
        self.shared.common.check_set_not_retiring(enter.set_id)?;
        self.shared.common.check_ruleset_is_durable(&ruleset)?;
        check_party_size(&enter.session, teams)?;
        let consents = check_party_consents(
            &self.shared.common,
            caller,
            (&ruleset, ConsentPurpose::Queue),
            &enter.session,
            &enter.consents,
            now,
        )?;
        let (mut session, tokens) = (enter.session, &enter.latency_tokens);
        let common = &self.shared.common;
        let AppliedLatencyTokens { mut ignored_fields, floors: _ } =
            apply_latency_tokens(common, caller, &ruleset, &mut session, tokens, now);
        let own_round_trips_ms = region_round_trips_ms(&session);
        let (session, place_and_center, untrusted) = common.with_coarse_locality_and_place(caller, session)?;
        ignored_fields.extend(untrusted);
        validate_session_for_ruleset(&ruleset, &session)?;
        check_roles_fit_team(&ruleset, teams, &session)?;
        let party_values = &self.shared.common.party_values;
        ignored_fields.extend(attribute_values::ignored_untrusted_field_paths(&ruleset, &session));
        let EnteredSession { session, player_ratings } = party_values.build_entered_session(&ruleset, session);
        let ticket = Arc::new(Ticket {
            id,
            set_id: enter.set_id,
            subject: caller.subject,
            entered_at: now,
            session,
            player_ratings,
            rating_digest_key: party_values.rating_key_unless_first_scale(&ruleset),
            exact_round_trips_ms: own_round_trips_ms,
            blocked_users: enter.blocked_users,
            excludes_other_tickets: !queue.allow_other_queues,
            self_answering_users: consents.users_acting_for_themselves.clone(),
        });
        let users: Vec<UserKey> = ticket.session.players.iter().map(|player| player.user).collect();
        let seat_vectors = published_player_vectors(common, caller, &ruleset, (&users, tokens), place_and_center, now);
        let key = queue_key_of(&ticket);
        let silo_use = Some(self.shared.common.open_silos.use_silo(ticket.session.silo, caller)?);
        let write = QueueWrite::EnterQueue {
            ticket,
            seat_vectors,
            expires_at: expiry_after_heartbeat(queue, now),
            request_digest,
            caller_user: caller.user,
            consents: consents.granted_consents(),
            // Game servers enter users for others, and callers without an identity cannot be told apart.
            max_tickets_per_user: caller.user.map(|_| self.shared.common.settings.max_tickets_per_user),
            now,
        };
        match self.shared.submit_write_keeping_silo_open(write, silo_use).await? {
            QueueOutcome::Entered { ticket: stored, .. } => {
                self.shared.connected_users.lock().record_connected(key, users, now);
                Ok(self.enter_answer(caller, &stored, (queue.ticket_ttl_ms, ignored_fields), now))
            }
            QueueOutcome::ConsentUnavailable(spent) => Err(consents.spent_error(spent)),
            refusal => Err(self.entry_refusal(caller, &users, &refusal, now)),
        }
    }

    /// Error for a party that cannot enter. A player's client learns the reason for its own user only: for others, whether
    /// they wait, play, have a cooldown or too many tickets, it is one error.
    fn entry_refusal(&self, caller: &Caller, users: &[UserKey], refusal: &QueueOutcome, now: UnixMs) -> EngineError {
        let is_hidden = |user: &UserKey| caller.user.is_some_and(|own| own != *user);
        match refusal {
            QueueOutcome::AlreadyQueued { user, .. }
            | QueueOutcome::AlreadyInMatch { user, .. }
            | QueueOutcome::OnCooldown { user, .. }
            | QueueOutcome::TooManyTickets { user }
                if is_hidden(user) =>
            {
                EngineError::PlayerUnavailable
            }
            QueueOutcome::AlreadyQueued { user, other_ticket } => {
                let cache = self.shared.cache.read();
                let is_own = cache.ticket(*other_ticket).is_some_and(|stored| stored.ticket.subject == caller.subject);
                let own_ticket = (is_own && caller.subject.is_some()).then_some(*other_ticket);
                EngineError::AlreadyQueued { player_index: player_index(users, *user), own_ticket }
            }
            QueueOutcome::TooManyTickets { user } => EngineError::TooManyTickets {
                player_index: player_index(users, *user),
                limit: self.shared.common.settings.max_tickets_per_user,
            },
            QueueOutcome::AlreadyInMatch { user, .. } => {
                EngineError::AlreadyInMatch { player_index: player_index(users, *user) }
            }
            QueueOutcome::OnCooldown { user, until } => {
                let retry_after_ms = u32::try_from(until.ms_since(now)).unwrap_or(u32::MAX).max(1);
                EngineError::QueueCooldown { player_index: player_index(users, *user), retry_after_ms }
            }
            QueueOutcome::IdempotencyKeyReused => EngineError::IdempotencyKeyReused,
            _ => EngineError::Internal,
        }
    }

    /// Ticket of the same request; `None` if its key is new here. Fails if the key was used for another request.
    fn ticket_of_repeated_enter(
        &self,
        caller: &Caller,
        enter: &EnterQueueCommand,
        (id, request_digest): (TicketId, [u8; 16]),
    ) -> Result<Option<StoredTicket>, EngineError> {
        let cache = self.shared.cache.read();
        let (stored, digest) = match cache.ticket(id) {
            Some(stored) => (stored, request_digest),
            None => {
                let (signer, key) = (&self.shared.common.token_signer, &enter.idempotency_key);
                let former_id = signer.legacy_ticket_id(caller.subject, enter.set_id, key);
                let Some(stored) = cache.ticket(former_id) else { return Ok(None) };
                let session = &enter.session;
                let digest = HmacTokenSigner::searching_party_digest(
                    caller.subject,
                    &session.sorted_users(),
                    &session.party_sizes,
                );
                (stored, digest)
            }
        };
        (stored.request_digest == digest).then(|| Some(stored.clone())).ok_or(EngineError::IdempotencyKeyReused)
    }

    fn answer_for_repeated_enter(
        &self,
        caller: &Caller,
        enter: &EnterQueueCommand,
        stored: &StoredTicket,
        now: UnixMs,
    ) -> EnterQueueAnswer {
        let ruleset = self.shared.common.rulesets.ruleset_in_force(enter.set_id);
        let ttl_ms = ruleset.as_ref().and_then(|ruleset| Some(ruleset.queue.as_ref()?.ticket_ttl_ms));
        let left_ms = || u32::try_from(stored.expires_at.ms_since(now)).unwrap_or(u32::MAX);
        let ignored_fields =
            ruleset.map(|ruleset| attribute_values::ignored_untrusted_field_paths(&ruleset, &enter.session));
        self.enter_answer(caller, stored, (ttl_ms.unwrap_or_else(left_ms), ignored_fields.unwrap_or_default()), now)
    }

    fn enter_answer(
        &self,
        caller: &Caller,
        stored: &StoredTicket,
        (expires_in_ms, ignored_fields): (u32, Vec<String>),
        now: UnixMs,
    ) -> EnterQueueAnswer {
        let Ticket { id: ticket_id, set_id, .. } = *stored.ticket;
        let claim = TicketClaim { ticket_id, set_id, subject: caller.subject };
        let holder = TicketTokenHolder { ticket_id, set_id, user: caller.user, is_seat_token: false };
        let status = self.shared.ticket_status_for(&holder, stored, now);
        let ticket_token = self.shared.common.token_signer.sign(&claim);
        EnterQueueAnswer { status, ticket_token, expires_in_ms, ignored_fields }
    }
}

/// Checks that the session is one party, that its players are listed, and that it fits into a team.
fn check_party_size(session: &Session, teams: &TeamsSpec) -> Result<(), EngineError> {
    if session.players.is_empty() {
        return Err(field_error("session_composition.players", "is required; list all players of the party"));
    }
    if session.party_sizes.len() != 1 {
        let problem = "must contain exactly one party; enter each party with its own ticket";
        return Err(field_error("session_composition.party_size_composition", problem));
    }
    let (size, max) = (session.player_count(), teams.max_party_size);
    if size > max {
        return Err(EngineError::PartyTooLarge { size, max });
    }
    Ok(())
}

/// Checks that the players can be in one team with the roles that they want, and those that their party offers.
fn check_roles_fit_team(ruleset: &Ruleset, teams: &TeamsSpec, session: &Session) -> Result<(), EngineError> {
    if teams.roles.is_empty() {
        return Ok(());
    }
    let wanted_roles = player_details::wanted_roles_by_player(ruleset, session);
    let offered_roles =
        default_offered_roles(ruleset, &AttributeValues::from_session_without_standings(ruleset, session));
    let ratings = vec![0.0; session.players.len()];
    let party = TeamParty { ratings: &ratings, offered_roles: &offered_roles, wanted_roles: &wanted_roles };
    if team::party_fits_into_a_team(teams, &party) {
        return Ok(());
    }
    let attribute =
        teams.offered_roles_attribute.filter(|_| wanted_roles.is_empty()).map(|index| &ruleset.attributes[index]);
    if let Some(attribute) = attribute {
        let problem = "has roles that no team has for all players of the party; add others, or enter them apart";
        return Err(field_error(format!("session_composition.attributes[\"{}\"]", attribute.name), problem));
    }
    let problem = "want roles that no team has together; let one of them want another role, or enter them apart";
    Err(field_error("session_composition.players", problem))
}

/// Round trips as the party measured them, in the order of its regions; `None` without any.
fn region_round_trips_ms(session: &Session) -> Option<Box<[f32]>> {
    let measured = &session.region_latencies;
    (!measured.is_empty()).then(|| measured.iter().map(|latency| latency.round_trip_ms).collect())
}

/// Index of `user` in the party.
fn player_index(users: &[UserKey], user: UserKey) -> usize {
    users.iter().position(|rating| *rating == user).unwrap_or(0)
}

//! Enter command: validates a party and writes its ticket.

use std::sync::Arc;

use crate::auth::token::{ConsentPurpose, TicketClaim, TokenSigner};
use crate::domain::attribute_values;
use crate::domain::id::UserKey;
use crate::domain::queue::entry::EnteredSession;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::checked_session::check_session;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::open_silos::SiloUse;
use crate::engine::party_consent::check_party_consents;
use crate::engine::queues::command::{EnterQueueAnswer, EnterQueueCommand};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::stored_ticket::{queue_key_of, ticket_expires_at};
use crate::engine::queues::ticket_holder::TicketHolder;
use crate::store::queues::{QueueOutcome, QueueWrite};

impl QueueEngine {
    /// Enters a party into a queue. Durable when it returns; dropping the future does not cancel the write.
    pub async fn enter_queue(
        &self,
        caller: &Caller,
        enter: EnterQueueCommand,
    ) -> Result<EnterQueueAnswer, EngineError> {
        let now = self.shared.common.clock.now();
        let ruleset = self.shared.common.ruleset(enter.set_id, enter.ruleset_hash)?;
        let (Some(queue), Some(teams)) = (&ruleset.queue, &ruleset.teams) else {
            return Err(EngineError::NoQueue(enter.set_id));
        };
        let id = self.shared.common.token_signer.derive_ticket_id(caller.subject, enter.set_id, &enter.idempotency_key);
        // A retry of an earlier enter returns its ticket.
        if self.shared.cache.read().ticket(id).is_none() {
            self.shared.common.check_set_not_retiring(enter.set_id)?;
        }
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
        let own_round_trips_ms = measured_round_trips_ms(&enter.session);
        let (session, mut ignored_fields) = self.shared.common.with_coarse_locality(caller, enter.session)?;
        check_session(&ruleset, &session)?;
        let party_values = &self.shared.common.party_values;
        ignored_fields.extend(attribute_values::untrusted_fields(&ruleset, &session));
        let request_digest = TokenSigner::party_digest(caller.subject, &session.sorted_users(), &session.party_sizes);
        let EnteredSession { session, player_ratings } = party_values.enter_session(&ruleset, session);
        let ticket = Arc::new(Ticket {
            id,
            set_id: enter.set_id,
            subject: caller.subject,
            entered_at: now,
            session,
            player_ratings,
            rating_digest_key: party_values.rating_digest_key(&ruleset),
            own_round_trips_ms,
            blocked_users: enter.blocked_users,
            exclusive: !queue.allow_other_queues,
            self_answering: consents.self_answering.clone(),
        });
        let users: Vec<UserKey> = ticket.session.players.iter().map(|player| player.user).collect();
        let key = queue_key_of(&ticket);
        let silo_use = self.use_silo_for_ticket(&ticket, caller)?;
        let write = QueueWrite::EnterQueue {
            ticket,
            expires_at: ticket_expires_at(queue, now),
            request_digest,
            caller_user: caller.user,
            consents: consents.granted(),
            // Game servers enter users for others, and callers without an identity cannot be told apart.
            max_tickets_per_user: caller.user.map(|_| self.shared.common.settings.max_tickets_per_user),
            now,
        };
        match self.shared.submit_write_in_silo(write, silo_use).await? {
            QueueOutcome::Entered { ticket: stored, .. } => {
                self.shared.connected_users.lock().record_connected(key, users, now);
                let claim = TicketClaim { ticket_id: id, set_id: enter.set_id, subject: caller.subject };
                let holder = TicketHolder { ticket_id: id, set_id: enter.set_id, user: caller.user, is_seat: false };
                let status = self.shared.ticket_status_for(&holder, &stored, now);
                let ticket_token = self.shared.common.token_signer.sign(&claim);
                Ok(EnterQueueAnswer { status, ticket_token, expires_in_ms: queue.ticket_ttl_ms, ignored_fields })
            }
            QueueOutcome::ConsentSpent(spent) => Err(consents.spent_error(spent)),
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

    /// Use of the ticket's silo while it is entered. `None` for a repeated enter of a ticket that has ended: it opens no
    /// silo. A live ticket keeps its silo open, so repeating its enter is not refused.
    fn use_silo_for_ticket(&self, ticket: &Ticket, caller: &Caller) -> Result<Option<SiloUse>, EngineError> {
        match self.shared.common.open_silos.use_silo(ticket.session.silo, caller) {
            Ok(silo_use) => Ok(Some(silo_use)),
            Err(_) if self.shared.cache.read().ticket(ticket.id).is_some() => Ok(None),
            Err(error) => Err(error),
        }
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

/// Round trips as the party measured them, in the order of its regions; `None` without any.
fn measured_round_trips_ms(session: &Session) -> Option<Box<[f32]>> {
    let measured = &session.region_latencies;
    (!measured.is_empty()).then(|| measured.iter().map(|latency| latency.round_trip_ms).collect())
}

/// Index of `user` in the party.
fn player_index(users: &[UserKey], user: UserKey) -> usize {
    users.iter().position(|rating| *rating == user).unwrap_or(0)
}

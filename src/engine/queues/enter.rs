//! A party enters: from a command to a ticket for the store.

use std::sync::Arc;

use crate::auth::token::{Signer, TicketClaim};
use crate::domain::facts;
use crate::domain::id::UserKey;
use crate::domain::queue::ticket::{Rated, Ticket};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::session::{Player, Session};
use crate::domain::time::UnixMs;
use crate::engine::command::Caller;
use crate::engine::fault::Fault;
use crate::engine::queues::command::{Enter, EnterAnswer};
use crate::engine::queues::hall::Hall;
use crate::engine::seeker::{check_session, field};
use crate::store::queues::{QueueOutcome, QueueWrite};

impl Hall {
    /// A party begins to wait. Durable when it is answered; dropping the answer cancels nothing.
    pub(super) async fn enter(&self, caller: &Caller, enter: Enter) -> Result<EnterAnswer, Fault> {
        let now = self.core.clock.now();
        let ruleset = self.core.ruleset(enter.set_id, enter.hash)?;
        let (Some(queue), Some(teams)) = (&ruleset.queue, &ruleset.teams) else {
            return Err(Fault::NoQueue(enter.set_id));
        };
        let key = &enter.idempotency_key;
        check_form(&enter.session, teams)?;
        self.core.check_party(caller, &ruleset, &enter.session, &enter.consents, now)?;
        let (session, mut ignored) = self.core.placed(caller, enter.session)?;
        check_session(&ruleset, &session)?;
        ignored.extend(facts::ignored(&ruleset, &session));
        let id = self.core.signer.ticket_id(caller.subject, enter.set_id, key);
        let payload = Signer::party_digest(caller.subject, &session.users(), &session.party_sizes);
        let ratings = self.rated(&ruleset, &session, now);
        let ticket = Arc::new(Ticket {
            id,
            set_id: enter.set_id,
            subject: caller.subject,
            entered: now,
            session,
            ratings,
            blocked: enter.blocked,
            alone: !queue.several_queues,
        });
        let users: Vec<UserKey> = ticket.session.players.iter().map(|player| player.user).collect();
        let silo = ticket.session.silo;
        let write = QueueWrite::Enter { ticket, expires: lapses_at(queue, now), payload, now };
        match self.write(write).await? {
            QueueOutcome::Entered { stored, .. } => {
                self.presence.lock().note(silo, users, now);
                let claim = TicketClaim { id, set_id: enter.set_id, subject: caller.subject };
                let status = self.status(&stored, now);
                let token = self.core.signer.seal(&claim);
                Ok(EnterAnswer { status, token, expires_in_ms: queue.ticket_lapse_ms, ignored })
            }
            QueueOutcome::AlreadyQueued { user, ticket } => {
                let own = self.roster.read().ticket(ticket).is_some_and(|it| it.ticket.subject == caller.subject);
                let ticket = (own && caller.subject.is_some()).then_some(ticket);
                Err(Fault::AlreadyQueued { player: place_of(&users, user), ticket })
            }
            QueueOutcome::AlreadyPlaying { user, .. } => Err(Fault::InAMatch { player: place_of(&users, user) }),
            QueueOutcome::Barred { user, until } => {
                let retry_after_ms = u32::try_from(until.since(now)).unwrap_or(u32::MAX).max(1);
                Err(Fault::Barred { player: place_of(&users, user), retry_after_ms })
            }
            QueueOutcome::KeyReused => Err(Fault::KeyReused),
            _ => Err(Fault::Internal),
        }
    }

    /// The players' ratings as of now.
    fn rated(&self, ruleset: &Ruleset, session: &Session, now: UnixMs) -> Vec<Rated> {
        let ratings = self.ratings.lock();
        let rated = |player: &Player| {
            let known = ratings.of(ruleset, player.user, now);
            Rated::at_entry(ruleset, known, player.skill, session.origin)
        };
        session.players.iter().map(rated).collect()
    }
}

/// Until when a ticket is believed that was heard of at `now`.
pub(super) fn lapses_at(queue: &QueueSpec, now: UnixMs) -> UnixMs {
    now.after(u64::from(queue.ticket_lapse_ms))
}

/// A ticket is one party, all of it named, that fits into a team.
fn check_form(session: &Session, teams: &TeamsSpec) -> Result<(), Fault> {
    if session.players.is_empty() {
        return Err(field("session_composition.players", "is required: a queue must know who waits"));
    }
    if session.party_sizes.len() != 1 {
        let what = "has several parties: a ticket is one party; enter each with its own";
        return Err(field("session_composition.party_size_composition", what));
    }
    let (size, most) = (session.player_count(), teams.max_party_size);
    if most < size {
        return Err(Fault::PartyTooLarge { size, most });
    }
    Ok(())
}

/// Which of the players it is about.
fn place_of(users: &[UserKey], user: UserKey) -> usize {
    users.iter().position(|known| *known == user).unwrap_or(0)
}

//! End of a match: reported by its game server, its host or one of its players.

use crate::auth::token::AdvertisementClaim;
use crate::domain::id::UserKey;
use crate::domain::lifecycle::event::MatchEvent;
use crate::domain::lifecycle::{Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket};
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::command::{EndMatchAnswer, EndMatchCommand, EndMatchProof};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::ticket_holder::TicketTokenHolder;

/// Time after a match's start in which its server may report a failure, milliseconds.
const SERVER_FAILURE_REPORT_WINDOW_MS: u64 = 60_000;

/// Effect of a permitted call to end a match.
enum MatchEndCheck {
    /// Nothing: the match has ended for this reason.
    HasEnded(MatchEndReason),
    /// Applies this event.
    Event(MatchEvent),
}

impl QueueEngine {
    /// Ends a match, or reports that its server failed. Idempotent: afterwards returns the end reason.
    pub async fn end_match(&self, caller: &Caller, end: EndMatchCommand) -> Result<EndMatchAnswer, EngineError> {
        let match_id = match (end.match_id, &end.proof) {
            (Some(match_id), _) => match_id,
            (None, EndMatchProof::GameServer(token)) => self.only_match_of_host(caller, token)?,
            (None, EndMatchProof::Ticket(_)) => return Err(EngineError::NotOwner),
        };
        let match_ = self.shared.find_match(match_id).await?.ok_or(EngineError::NotOwner)?.into_match();
        let check = match self.check_match_end(caller, &end, &match_) {
            Err(refusal) => match self.shared.wait_for_newer_match(&match_).await? {
                Some(newer) => self.check_match_end(caller, &end, &newer)?,
                None => return Err(refusal),
            },
            Ok(check) => check,
        };
        match check {
            MatchEndCheck::HasEnded(end_reason) => Ok(Some(end_reason)),
            MatchEndCheck::Event(event) => {
                let outcome = self.shared.apply_match_event(match_id, event).await?;
                Ok(outcome.match_after.stage.end_reason())
            }
        }
    }

    /// Checks whether the match may end now, by this caller.
    fn check_match_end(
        &self,
        caller: &Caller,
        end: &EndMatchCommand,
        match_: &Match,
    ) -> Result<MatchEndCheck, EngineError> {
        let reported_by = self.authorize_match_end(caller, end, match_)?;
        let is_recent = match match_.stage {
            MatchStage::Playing { started_at, .. } => {
                self.shared.common.clock.now().ms_since(started_at) < SERVER_FAILURE_REPORT_WINDOW_MS
            }
            MatchStage::Ended { end_reason, .. } => return Ok(MatchEndCheck::HasEnded(end_reason)),
            // Before the start, players decline or leave instead, which may carry a penalty.
            MatchStage::Confirming { .. } if end.has_game_server_failed => true,
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Confirming { .. } => {
                return Err(EngineError::MatchNotStarted);
            }
        };
        let failed_host =
            match_.stage.assignment_since_confirming().filter(|_| end.has_game_server_failed && is_recent).cloned();
        Ok(MatchEndCheck::Event(match failed_host {
            Some(host) => MatchEvent::ServerFailed { host },
            None => MatchEvent::EndReported { reported_by },
        }))
    }

    /// Player who reports the end; `None` for a game server. Fails for callers that may not end the match.
    fn authorize_match_end(
        &self,
        caller: &Caller,
        end: &EndMatchCommand,
        match_: &Match,
    ) -> Result<Option<UserKey>, EngineError> {
        let signer = &self.shared.common.token_signer;
        match &end.proof {
            EndMatchProof::GameServer(token) => {
                let claim = signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
                let is_hosted_here = match_
                    .stage
                    .assignment_since_confirming()
                    .is_some_and(|assignment| assignment.is_on_game_server_with_id(claim.advertisement_id));
                (claim.subject == caller.subject && is_hosted_here).then_some(None).ok_or(EngineError::NotOwner)
            }
            EndMatchProof::Ticket(token) => {
                let holder = TicketTokenHolder::verify(signer, caller, token)?;
                let match_ticket =
                    match_.tickets.iter().find(|match_ticket| match_ticket.ticket_id == holder.ticket_id);
                let match_ticket = match_ticket.ok_or(EngineError::NotOwner)?;
                let mut players = self.players_holder_ends_for(&holder, match_, match_ticket);
                match match_.stage.assignment_since_play_start() {
                    Some(Assignment::GameServer { .. }) => Err(EngineError::NotOwner),
                    Some(Assignment::PeerHost { host }) => {
                        let host_player = players.find(|player| player.client == *host);
                        Ok(Some(host_player.ok_or(EngineError::NotOwner)?.user))
                    }
                    Some(Assignment::Unhosted) if end.has_game_server_failed => {
                        Err(field_error("failed", "must not be set; this match has no game server"))
                    }
                    Some(Assignment::Unhosted) | None => Ok(Some(players.next().ok_or(EngineError::NotOwner)?.user)),
                }
            }
        }
    }

    /// Players of the ticket for whom the holder may end the match: those it acts for, and while the match runs only those who
    /// have not left it, unless the caller has no user.
    fn players_holder_ends_for<'a>(
        &self,
        holder: &TicketTokenHolder,
        match_: &Match,
        match_ticket: &'a MatchTicket,
    ) -> impl Iterator<Item = &'a MatchPlayer> {
        let stored = self.shared.cache.read().ticket(holder.ticket_id).cloned();
        let acts_for = move |holder: &TicketTokenHolder, user: UserKey| match &stored {
            Some(stored) => holder.acts_for(&stored.ticket, user),
            None => holder.user.is_none_or(|own_user| own_user == user),
        };
        let (holder, has_ended) = (*holder, match_.stage.end_reason().is_some());
        match_ticket.players.iter().filter(move |player| {
            acts_for(&holder, player.user) && (has_ended || holder.user.is_none() || player.left_at.is_none())
        })
    }
}

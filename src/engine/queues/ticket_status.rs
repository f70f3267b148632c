//! How a ticket stands, as its party is told.

use std::sync::Arc;

use crate::auth::match_credential::MatchCredential;
use crate::auth::token::ResumeClaim;
use crate::domain::id::UserKey;
use crate::domain::lifecycle::{Assignment, Match, MatchStage};
use crate::domain::time::UnixMs;
use crate::engine::queues::command::{MatchView, OwnPlayerView, TicketPhase, TicketStatus};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::wait_estimator::WaitClass;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

/// Stands for a match's edition where a ticket is passed over for a match that is not its own: no match has so many.
const PAUSED_MATCH_VERSION: u64 = u64::MAX;

/// What of a ticket's match it has heard of.
fn reported_match_version(standing: TicketPhase, play: Option<&Match>) -> u64 {
    match standing {
        TicketPhase::Paused => PAUSED_MATCH_VERSION,
        _ => play.map_or(0, |play| play.version),
    }
}

impl SharedState {
    /// What a ticket's party is told at `now`.
    pub(super) fn ticket_status(&self, stored: &StoredTicket, now: UnixMs) -> TicketStatus {
        let ticket = &stored.ticket;
        let roster = self.cache.read();
        let play = match stored.state {
            TicketState::InMatch(id) => roster.match_by_id(id).cloned(),
            TicketState::Ended { match_id: by, .. } => by.and_then(|id| roster.match_by_id(id).cloned()),
            TicketState::Waiting => None,
        };
        let standing = match stored.state {
            TicketState::Ended { end_reason: how, .. } => TicketPhase::Ended(how),
            TicketState::Waiting => {
                let users = ticket.session.players.iter().map(|player| player.user);
                if roster.running_match_of(users).is_some() { TicketPhase::Paused } else { TicketPhase::Waiting }
            }
            TicketState::InMatch(_) => match play.as_ref().map(|play| &play.stage) {
                Some(MatchStage::Placing { .. }) => TicketPhase::Placing,
                Some(MatchStage::Playing { .. }) => TicketPhase::Matched,
                // The match is not here yet, or has just been over; the ticket follows.
                Some(MatchStage::ReadyCheck { .. } | MatchStage::Ended { .. }) | None => TicketPhase::Proposed,
            },
        };
        let waits = matches!(standing, TicketPhase::Waiting | TicketPhase::Paused);
        let key = QueueKey { set_id: ticket.set_id, silo: ticket.session.silo };
        let position =
            waits.then(|| roster.queue_index(key).map_or(0, |room| room.position_of(ticket.entered_at, ticket.id)));
        drop(roster);
        let rules = self.core.rulesets.active_ruleset(ticket.set_id);
        // Whoever plays, or has played, has waited until the match began.
        let until = match play.as_ref().map(|play| &play.stage) {
            Some(MatchStage::Playing { started_at: began, .. } | MatchStage::Ended { began: Some(began), .. })
                if !waits =>
            {
                *began
            }
            _ => now,
        };
        let waited_ms = until.ms_since(ticket.entered_at);
        let offer = rules.as_ref().and_then(|rules| rules.queue.as_ref()?.offer);
        let sort = WaitClass {
            set_id: ticket.set_id,
            region: nearest_region(stored),
            party_size: ticket.session.player_count(),
        };
        let estimate = self.wait_estimator.lock().estimate(&sort, now).filter(|_| waits);
        let heard = ResumeClaim {
            ticket_id: ticket.id,
            ticket_version: stored.version,
            match_version: reported_match_version(standing, play.as_deref()),
        };
        TicketStatus {
            id: ticket.id,
            set_id: ticket.set_id,
            phase: standing,
            waited_ms,
            position,
            wait_estimate_ms: estimate.map(|estimate| (estimate.p50_ms, estimate.p90_ms)),
            match_view: play.map(|play| self.match_view(stored, &play, now)),
            offered_set: offer.filter(|offer| waits && offer.after_ms <= waited_ms).map(|offer| offer.set_id),
            blocking_rule: self.pass_reports.lock().blocking_rule(key, ticket.id).filter(|_| waits),
            resume_token: self.core.token_signer.sign(&heard),
        }
    }

    /// A match as one of its tickets sees it.
    fn match_view(&self, stored: &StoredTicket, play: &Arc<Match>, now: UnixMs) -> MatchView {
        let signer = &self.core.token_signer;
        let on = matches!(play.stage, MatchStage::Playing { .. });
        let rules = self.ruleset_or_current(play.set_id, play.ruleset_hash);
        let roles = rules.as_ref().and_then(|rules| rules.teams.as_ref()).map(|teams| &teams.roles);
        let own = play.tickets.iter().find(|member| member.ticket_id == stored.ticket.id);
        let team = own.map_or(0, |member| member.team);
        let seats = own.into_iter().flat_map(|member| &member.players).map(|seat| {
            let player_key = signer.derive_player_key(play.id, seat.user);
            OwnPlayerView {
                player_key,
                team_role: seat.role.and_then(|role| Some(roles?.get(usize::from(role))?.name.clone())),
                accepted: seat.accepted,
                credential: self.player_credential(play, seat.user, player_key, team, now),
            }
        });
        let everybody = play.tickets.iter().filter(|_| on).flat_map(|member| {
            member.players.iter().map(|seat| (signer.derive_player_key(play.id, seat.user), member.team))
        });
        let deadline = match play.stage {
            MatchStage::ReadyCheck { deadline } | MatchStage::Placing { deadline } => Some(deadline),
            MatchStage::Playing { .. } | MatchStage::Ended { .. } => None,
        };
        MatchView {
            deadline_in_ms: deadline.map(|at| u32::try_from(at.ms_since(now)).unwrap_or(u32::MAX)),
            own_players: seats.collect(),
            players: everybody.collect(),
            team,
            host: match play.stage.assignment() {
                Some(Assignment::PeerHost { host }) => {
                    let mut seats = play.tickets.iter().flat_map(|member| &member.players);
                    seats.find(|seat| seat.client == *host).map(|seat| signer.derive_player_key(play.id, seat.user))
                }
                Some(Assignment::GameServer { .. } | Assignment::Unhosted) | None => None,
            },
            found_match: Arc::clone(play),
        }
    }
}

impl SharedState {
    /// What a player shows the game server; nothing until the match is on.
    fn player_credential(&self, play: &Match, user: UserKey, player: UserKey, team: u16, now: UnixMs) -> String {
        let Some(place) = play.stage.assignment() else { return String::new() };
        let says = MatchCredential { match_id: play.id, user_key: user, player_key: player, team, assignment: place };
        let signed = self.core.match_credential_keys.sign_credential(&says, self.core.clock.random_bytes(), now);
        signed.unwrap_or_else(|error| {
            tracing::error!(%error, "sign a credential");
            String::new()
        })
    }
}

/// The region to which a party's round trip is shortest; empty where it has measured none.
pub(super) fn nearest_region(stored: &StoredTicket) -> Box<str> {
    let regions = stored.ticket.session.region_latencies.iter();
    let nearest = regions.min_by(|one, other| one.round_trip_ms.total_cmp(&other.round_trip_ms));
    nearest.map_or_else(|| "".into(), |nearest| nearest.region.clone())
}

/// Whether a ticket is over.
pub(super) fn is_ticket_ended(stored: &StoredTicket) -> bool {
    matches!(stored.state, TicketState::Ended { .. })
}

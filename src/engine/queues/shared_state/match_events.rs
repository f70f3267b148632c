//! Events of matches and ends of tickets, in the metrics and in the log. Only the server whose commit it was records one.

use crate::domain::id::SetId;
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::shared_state::hosted_matches::MatchBeforeAndAfter;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::store::queues::{StoredTicket, TicketState};
use crate::telemetry::label::{MatchEventLabel, TicketOutcomeLabel};
use crate::telemetry::log::MATCH_LOG_TARGET;

/// Ticket that has just ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EndedTicket {
    set_id: SetId,
    /// `Played` whenever play began, also if the party left afterwards.
    outcome: TicketOutcomeLabel,
    /// Time from entering until play began or, without play, until the end, milliseconds.
    waited_ms: u64,
}

impl EndedTicket {
    /// The end of `next`, if the cache has the ticket without it. `None` for a ticket of a session's match, which has not waited
    /// in a queue. The cache must have the match already.
    pub(super) fn of_change(cache: &TicketMatchCache, next: &StoredTicket, now: UnixMs) -> Option<Self> {
        let TicketState::Ended { end_reason, match_id, .. } = next.state else { return None };
        let before = cache.ticket(next.ticket.id)?;
        if matches!(before.state, TicketState::Ended { .. }) || next.version <= before.version {
            return None;
        }
        let match_ = match_id.and_then(|id| cache.match_by_id(id));
        if match_.is_some_and(|match_| match_.session_match_start_by_host.is_some()) {
            return None;
        }
        let began_at = match_.and_then(|match_| match_.stage.started_at());
        let outcome = match began_at {
            Some(_) => TicketOutcomeLabel::Played,
            None => TicketOutcomeLabel::from_end_reason(end_reason),
        };
        let waited_ms = began_at.unwrap_or(now).ms_since(next.ticket.entered_at);
        Some(Self { set_id: next.ticket.set_id, outcome, waited_ms })
    }
}

impl SharedState {
    /// Records the ends of tickets.
    pub(super) fn record_ticket_ends(&self, ended: &[EndedTicket]) {
        for EndedTicket { set_id, outcome, waited_ms } in ended {
            self.common.metrics.record_ticket_end(*set_id, *outcome, *waited_ms as f64 / 1_000.0);
        }
    }

    /// Records the events of matches that have changed.
    pub(super) fn record_match_events(&self, changes: &[MatchBeforeAndAfter]) {
        for (before, next) in changes {
            let before = before.as_deref();
            for event in events_of_change(before, next) {
                self.common.metrics.record_match_event(next.set_id, event);
                log_match_event(event, next);
            }
            let left = left_player_count(next).saturating_sub(before.map_or(0, left_player_count));
            if left > 0 {
                self.common.metrics.record_players_left(next.set_id, left);
            }
        }
    }
}

/// Events that a change of a match shows. A match that is seen first after its end has none: it was counted before.
fn events_of_change(before: Option<&Match>, next: &Match) -> impl Iterator<Item = MatchEventLabel> + use<> {
    let end_reason = next.stage.end_reason();
    let is_new = before.is_none();
    let was_ended = before.is_some_and(|before| before.stage.end_reason().is_some());
    let had_begun = before.is_some_and(|before| before.stage.started_at().is_some());
    let proposed = (is_new && end_reason.is_none()).then_some(MatchEventLabel::Proposed);
    let begins = matches!(next.stage, MatchStage::Playing { .. }) && !had_begun;
    let ended = end_reason.filter(|_| !is_new && !was_ended).map(MatchEventLabel::from_end_reason);
    [proposed, begins.then_some(MatchEventLabel::Began), ended].into_iter().flatten()
}

fn left_player_count(match_: &Match) -> u64 {
    let players = match_.tickets.iter().flat_map(|ticket| &ticket.players);
    players.filter(|player| player.left_at.is_some()).count() as u64
}

/// Logs an event: match, set, numbers and, at the end, the reason. Never a user.
fn log_match_event(event: MatchEventLabel, match_: &Match) {
    let (match_id, set_id, tickets) = (match_.id, match_.set_id, match_.tickets.len());
    let players: usize = match_.tickets.iter().map(|ticket| ticket.players.len()).sum();
    match event {
        MatchEventLabel::Proposed => {
            let quality = match_.quality;
            tracing::info!(target: MATCH_LOG_TARGET, %match_id, %set_id, tickets, players, quality, "match proposed");
        }
        MatchEventLabel::Began => {
            tracing::info!(target: MATCH_LOG_TARGET, %match_id, %set_id, tickets, players, "match began");
        }
        end => {
            let reason = end.as_str();
            tracing::info!(target: MATCH_LOG_TARGET, %match_id, %set_id, tickets, players, reason, "match ended");
        }
    }
}

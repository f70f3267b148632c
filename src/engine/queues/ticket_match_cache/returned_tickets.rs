//! Tickets that wait again after a match that was not played, with that match: it says why.

use std::collections::HashMap;

use crate::domain::id::{BuildIdHasher, MatchId, TicketId};
use crate::domain::lifecycle::{Match, MatchEndReason};
use crate::domain::time::UnixMs;

/// Last match without play of each ticket, as long as the match is in memory.
#[derive(Debug, Default)]
pub(super) struct LastUnplayedMatches(HashMap<TicketId, (UnixMs, MatchId), BuildIdHasher>);

impl LastUnplayedMatches {
    /// Records a match, if it has ended without play. Matches may come in any order: the one proposed last counts, and of those
    /// proposed at the same time the one recorded last.
    pub(super) fn record(&mut self, ended: &Match) {
        if !ended.stage.end_reason().is_some_and(returns_tickets) {
            return;
        }
        let last = (ended.proposed_at, ended.id);
        for ticket in &ended.tickets {
            let known = self.0.entry(ticket.ticket_id).or_insert(last);
            if known.0 <= last.0 {
                *known = last;
            }
        }
    }

    /// Forgets a match that leaves memory.
    pub(super) fn forget_match(&mut self, dropped: &Match) {
        for ticket in &dropped.tickets {
            if self.0.get(&ticket.ticket_id).is_some_and(|(_, id)| *id == dropped.id) {
                self.0.remove(&ticket.ticket_id);
            }
        }
    }

    /// Forgets a ticket that leaves memory.
    pub(super) fn forget_ticket(&mut self, id: TicketId) {
        self.0.remove(&id);
    }

    /// Last match of the ticket that ended without play.
    pub(super) fn last_unplayed_match(&self, id: TicketId) -> Option<MatchId> {
        self.0.get(&id).map(|(_, id)| *id)
    }
}

/// Whether matches that end so return tickets to the queue.
fn returns_tickets(reason: MatchEndReason) -> bool {
    match reason {
        MatchEndReason::Played | MatchEndReason::TimedOut | MatchEndReason::Abandoned => false,
        MatchEndReason::Declined
        | MatchEndReason::NotAcceptedInTime
        | MatchEndReason::NoServer
        | MatchEndReason::ServerFailed
        | MatchEndReason::Cancelled
        | MatchEndReason::HostLost => true,
    }
}

//! Index of one queue: its waiting tickets and running matches, in the orders that passes and deadlines need.

use std::collections::{BTreeSet, HashMap};

use crate::domain::id::{AdvertisementId, BuildIdHasher, MatchId, TicketId};
use crate::domain::time::UnixMs;
use crate::engine::queues::ticket_match_cache::waiting_tickets::WaitingTickets;

/// Highest reported queue position; tickets further back report this one.
const REPORTED_POSITION_MAX: u32 = 10_000;

/// Tickets and matches of one queue, in the orders that passes and deadlines need.
#[derive(Debug, Default)]
pub(crate) struct QueueTicketsAndMatches {
    /// Waiting tickets, longest wait first.
    pub(super) waiting_tickets: WaitingTickets,
    /// Waiting tickets by expiry.
    pub(super) ticket_expiries: BTreeSet<(UnixMs, TicketId)>,
    /// Players in waiting tickets.
    pub(super) waiting_player_count: u32,
    /// Matches that have not ended, by deadline: of their stage, or the expiry of a ticket before play.
    match_deadlines: BTreeSet<(UnixMs, MatchId)>,
    /// Deadlines in `match_deadlines`, by match.
    deadline_by_match: HashMap<MatchId, UnixMs, BuildIdHasher>,
    /// Matches whose players report the result, by the end of their report windows.
    report_deadlines: BTreeSet<(UnixMs, MatchId)>,
    /// Ends of report windows in `report_deadlines`, by match.
    report_deadline_by_match: HashMap<MatchId, UnixMs, BuildIdHasher>,
    /// Matches that need a game server.
    pub(super) placing_matches: BTreeSet<MatchId>,
    /// Matches that have not ended and fill open seats of a session, by its advertisement.
    pub(super) backfill_matches: BTreeSet<(AdvertisementId, MatchId)>,
    /// Value of the cache's change counter at the queue's last change.
    pub(crate) change_count_at_last_change: u64,
}

impl QueueTicketsAndMatches {
    /// Waiting tickets, longest wait first.
    pub(crate) fn waiting_tickets(&self) -> impl Iterator<Item = (UnixMs, TicketId)> + '_ {
        self.waiting_tickets.iter()
    }

    /// Number of tickets ahead of a waiting ticket, at most `REPORTED_POSITION_MAX`.
    pub(crate) fn tickets_ahead_of(&self, entered_at: UnixMs, id: TicketId) -> u32 {
        let ahead = self.waiting_tickets.count_ahead_of(&(entered_at, id));
        u32::try_from(ahead).unwrap_or(u32::MAX).min(REPORTED_POSITION_MAX)
    }

    pub(crate) fn waiting_ticket_count(&self) -> usize {
        self.waiting_tickets.len()
    }

    pub(crate) fn waiting_player_count(&self) -> u32 {
        self.waiting_player_count
    }

    pub(crate) fn live_match_count(&self) -> usize {
        self.match_deadlines.len()
    }

    pub(crate) fn placing_matches(&self) -> Vec<MatchId> {
        self.placing_matches.iter().copied().collect()
    }

    /// Matches that have not ended and fill open seats of the session with this advertisement.
    pub(crate) fn matches_filling_session(&self, session: AdvertisementId) -> Vec<MatchId> {
        let from = (session, MatchId::from_bytes([0; 16]));
        self.backfill_matches.range(from..).take_while(|(id, _)| *id == session).map(|(_, id)| *id).collect()
    }

    /// Matches that have not ended, earliest deadline first.
    pub(crate) fn live_matches(&self) -> impl Iterator<Item = MatchId> + '_ {
        self.match_deadlines.iter().map(|(_, id)| *id)
    }

    /// Matches whose report window has not ended.
    pub(crate) fn matches_awaiting_reports(&self) -> impl Iterator<Item = MatchId> + '_ {
        self.report_deadlines.iter().map(|(_, id)| *id)
    }

    /// Matches whose deadline is at or before `now`, at most `max`.
    pub(crate) fn due_matches(&self, now: UnixMs, max: usize) -> Vec<MatchId> {
        self.match_deadlines.iter().take_while(|(deadline, _)| *deadline <= now).take(max).map(|(_, id)| *id).collect()
    }

    /// Matches whose report window has ended at `now`, at most `max`.
    pub(crate) fn matches_with_ended_report_window(&self, now: UnixMs, max: usize) -> Vec<MatchId> {
        self.report_deadlines.iter().take_while(|(deadline, _)| *deadline <= now).take(max).map(|(_, id)| *id).collect()
    }

    /// Tickets that have expired at `now`, at most `max`.
    pub(crate) fn expired_tickets(&self, now: UnixMs, max: usize) -> Vec<TicketId> {
        self.ticket_expiries.iter().take_while(|(deadline, _)| *deadline <= now).take(max).map(|(_, id)| *id).collect()
    }

    /// Earliest deadline or expiry.
    pub(crate) fn next_deadline(&self) -> Option<UnixMs> {
        let earliest = [
            self.match_deadlines.first().map(|(deadline, _)| *deadline),
            self.ticket_expiries.first().map(|(deadline, _)| *deadline),
            self.report_deadlines.first().map(|(deadline, _)| *deadline),
        ];
        earliest.into_iter().flatten().min()
    }

    /// Replaces the deadline of a match; `None` removes it.
    pub(super) fn set_match_deadline(&mut self, id: MatchId, deadline: Option<UnixMs>) {
        let previous = match deadline {
            Some(deadline) => self.deadline_by_match.insert(id, deadline),
            None => self.deadline_by_match.remove(&id),
        };
        if previous != deadline {
            previous.map(|previous| self.match_deadlines.remove(&(previous, id)));
            deadline.map(|deadline| self.match_deadlines.insert((deadline, id)));
        }
    }

    /// Replaces the end of the report window of a match; `None` removes it.
    pub(super) fn set_report_deadline(&mut self, id: MatchId, deadline: Option<UnixMs>) {
        let previous = match deadline {
            Some(deadline) => self.report_deadline_by_match.insert(id, deadline),
            None => self.report_deadline_by_match.remove(&id),
        };
        if previous != deadline {
            previous.map(|previous| self.report_deadlines.remove(&(previous, id)));
            deadline.map(|deadline| self.report_deadlines.insert((deadline, id)));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting_tickets.is_empty() && self.match_deadlines.is_empty() && self.report_deadlines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_reported_up_to_a_limit() {
        let ticket = |number: u64| (UnixMs(number), TicketId::from_bytes(u128::from(number).to_be_bytes()));
        let mut index = QueueTicketsAndMatches::default();
        (0..u64::from(REPORTED_POSITION_MAX) + 10).for_each(|number| index.waiting_tickets.insert(ticket(number)));
        let position = |number: u64| index.tickets_ahead_of(ticket(number).0, ticket(number).1);
        assert_eq!([0, 9_999, 10_000, 10_009].map(position), [0, 9_999, 10_000, 10_000]);
    }
}

//! Players whose report of an ended match is awaited.

use std::collections::{HashMap, HashSet};

use crate::domain::id::{BuildIdHasher, MatchId, TicketId, UserKey};
use crate::domain::lifecycle::Match;

/// Tickets of ended matches whose report window is open, by the players who have not reported.
#[derive(Debug, Default)]
pub(super) struct AwaitedReports {
    tickets_by_user: HashMap<UserKey, Vec<(MatchId, TicketId)>, BuildIdHasher>,
    users_by_match: HashMap<MatchId, Vec<UserKey>, BuildIdHasher>,
}

impl AwaitedReports {
    /// Records a match as it is now.
    pub(super) fn record(&mut self, match_: &Match) {
        self.forget(match_.id);
        if match_.reports_due_at().is_none() {
            return;
        }
        let has_reported = |user| match_.side_reports.reports.iter().any(|report| report.user == user);
        let mut users = Vec::new();
        for ticket in &match_.tickets {
            let present = ticket.players.iter().filter(|player| player.left_at.is_none());
            for user in present.map(|player| player.user).filter(|user| !has_reported(*user)) {
                self.tickets_by_user.entry(user).or_default().push((match_.id, ticket.ticket_id));
                users.push(user);
            }
        }
        self.users_by_match.insert(match_.id, users);
    }

    /// Forgets a match.
    pub(super) fn forget(&mut self, id: MatchId) {
        for user in self.users_by_match.remove(&id).unwrap_or_default() {
            let Some(tickets) = self.tickets_by_user.get_mut(&user) else { continue };
            tickets.retain(|(match_id, _)| *match_id != id);
            if tickets.is_empty() {
                self.tickets_by_user.remove(&user);
            }
        }
    }

    /// All of these tickets.
    pub(super) fn tickets(&self) -> HashSet<TicketId> {
        self.tickets_by_user.values().flatten().map(|(_, ticket_id)| *ticket_id).collect()
    }

    /// Tickets by which a user may report.
    pub(super) fn tickets_of(&self, user: UserKey) -> impl Iterator<Item = TicketId> + '_ {
        self.tickets_by_user.get(&user).into_iter().flatten().map(|(_, ticket_id)| *ticket_id)
    }
}
